package reference

// linear computes y[n,m] = Σ_k x[n,k]·w[m,k] + b[m].
func (c *kernelCall[T]) linear() {
	x, w := c.in[0], c.in[1]
	m, k := c.inShape[1][0], c.inShape[1][1]
	for i := range c.out[0] {
		sum := 0.0
		for j, v := range x[i/m*k : (i/m+1)*k] {
			sum += float64(v) * float64(w[i%m*k+j])
		}
		if len(c.in) == 3 {
			sum += float64(c.in[2][i%m])
		}
		c.out[0][i] = T(sum)
	}
}

// linearBackwardData computes dx[n,k] = Σ_m dy[n,m]·w[m,k].
func (c *kernelCall[T]) linearBackwardData() {
	w, dy := c.in[0], c.in[1]
	m, k := c.inShape[0][0], c.inShape[0][1]
	for i := range c.out[0] {
		sum := 0.0
		for j, d := range dy[i/k*m : (i/k+1)*m] {
			sum += float64(d) * float64(w[j*k+i%k])
		}
		c.out[0][i] = T(sum)
	}
}

// linearBackwardWeights computes dw[m,k] = Σ_n dy[n,m]·x[n,k].
func (c *kernelCall[T]) linearBackwardWeights() {
	x, dy := c.in[0], c.in[1]
	k, m := c.inShape[0][1], c.inShape[1][1]
	for i := range c.out[0] {
		sum := 0.0
		for n := range c.inShape[0][0] {
			sum += float64(dy[n*m+i/k]) * float64(x[n*k+i%k])
		}
		c.out[0][i] = T(sum)
	}
}
