// Optimisers over flat float32 buffers, with a copy of the weights in T. Found_inf
// leaves everything as it is.

// adam is engine/reference's adam: w −= lr/(1−β₁ᵗ)·m/(√v/√(1−β₂ᵗ)+ε). Decoupled, the
// weight decay shrinks the weights by 1 − lr·decay first and leaves the gradient alone.
KERNEL(TYPED(adam))(float *__restrict__ w, const float *__restrict__ g, float *__restrict__ m, float *__restrict__ v, T *__restrict__ low, i64 n, const Control *__restrict__ control, float beta1, float beta2, float epsilon, float weight_decay, int decoupled, int unscaled) {
  if (control->found_inf) return;
  float inverse = gradient_factor(control, unscaled), keep = 1.0f;
  if (decoupled) {
    keep = 1.0f - control->learning_rate * weight_decay;
    weight_decay = 0.0f;
  }
  float rate = control->learning_rate / control->correct1, root = 1.0f / control->correct_root2;
  float other1 = 1.0f - beta1, other2 = 1.0f - beta2;
  bool aligned = aligned16(address(w) | address(g) | address(m) | address(v) | address(low));
  i64 vectors = aligned ? n / 8 : 0;
  for (i64 i = flat_start(); i < vectors; i += flat_step()) {
    Eight a = load8(w + i * 8), d = load8(g + i * 8), b = load8(m + i * 8), c = load8(v + i * 8);
    EACH8(j) {
      float step = fmaf(weight_decay, a.v[j], d.v[j] * inverse);
      b.v[j] = fmaf(beta1, b.v[j], other1 * step);
      c.v[j] = fmaf(beta2, c.v[j], other2 * step * step);
      a.v[j] = keep * a.v[j] - rate * b.v[j] / fmaf(sqrtf(c.v[j]), root, epsilon);
    }
    store8(w + i * 8, a);
    store8(m + i * 8, b);
    store8(v + i * 8, c);
    if (low) store8(low + i * 8, a);
  }
  for (i64 i = vectors * 8 + flat_start(); i < n; i += flat_step()) {
    float a = w[i], step = fmaf(weight_decay, a, g[i] * inverse);
    float b = fmaf(beta1, m[i], other1 * step), c = fmaf(beta2, v[i], other2 * step * step);
    a = keep * a - rate * b / fmaf(sqrtf(c), root, epsilon);
    w[i] = a;
    m[i] = b;
    v[i] = c;
    if (low) low[i] = from_float<T>(a);
  }
}

// sgd: buf ← momentum·buf + g; w ← w − lr·buf, with Nesterov w ← w − lr·(g + momentum·buf);
// without buffer w ← w − lr·g.
KERNEL(TYPED(sgd))(float *__restrict__ w, const float *__restrict__ g, float *__restrict__ buffer, T *__restrict__ low, i64 n, const Control *__restrict__ control, float momentum, float weight_decay, int nesterov, int unscaled) {
  if (control->found_inf) return;
  float inverse = gradient_factor(control, unscaled), rate = control->learning_rate;
  bool aligned = aligned16(address(w) | address(g) | address(buffer) | address(low));
  i64 vectors = aligned ? n / 8 : 0;
  for (i64 i = flat_start(); i < vectors; i += flat_step()) {
    Eight a = load8(w + i * 8), d = load8(g + i * 8);
    EACH8(j) d.v[j] = fmaf(weight_decay, a.v[j], d.v[j] * inverse);
    if (buffer) {
      Eight b = load8(buffer + i * 8);
      EACH8(j) b.v[j] = fmaf(momentum, b.v[j], d.v[j]);
      store8(buffer + i * 8, b);
      EACH8(j) d.v[j] = nesterov ? fmaf(momentum, b.v[j], d.v[j]) : b.v[j];
    }
    EACH8(j) a.v[j] = fmaf(-rate, d.v[j], a.v[j]);
    store8(w + i * 8, a);
    if (low) store8(low + i * 8, a);
  }
  for (i64 i = vectors * 8 + flat_start(); i < n; i += flat_step()) {
    float a = w[i], d = fmaf(weight_decay, a, g[i] * inverse);
    if (buffer) {
      float b = fmaf(momentum, buffer[i], d);
      buffer[i] = b;
      d = nesterov ? fmaf(momentum, b, d) : b;
    }
    a = fmaf(-rate, d, a);
    w[i] = a;
    if (low) low[i] = from_float<T>(a);
  }
}

// lars: v ← momentum·v + rate·(g + decay·w); w ← w − v, where rate and decay are the
// layer's (lars_rates). A block takes a chunk.
KERNEL(TYPED(lars))(float *__restrict__ w, const float *__restrict__ g, float *__restrict__ buffer, T *__restrict__ low, const Chunk *__restrict__ chunks, int first, const Rate *__restrict__ rates, const Control *__restrict__ control, float momentum) {
  if (control->found_inf) return;
  Chunk c = chunks[first + blockIdx.x];
  Rate rate = rates[c.layer];
  float inverse = gradient_factor(control, 0);
  for (int k = threadIdx.y * 8; k < c.size; k += blockDim.y * 8) {
    i64 i = c.weight + k;
    Eight a = load8(w + i), d = load8(g + c.gradient + k);
    EACH8(j) d.v[j] = rate.rate * fmaf(rate.decay, a.v[j], d.v[j] * inverse);
    if (buffer) {
      Eight b = load8(buffer + i);
      EACH8(j) d.v[j] = fmaf(momentum, b.v[j], d.v[j]);
      store8(buffer + i, d);
    }
    EACH8(j) a.v[j] -= d.v[j];
    store8(w + i, a);
    if (low) store8(low + i, a);
  }
}

// lamb: w ← w − rate·r, r the direction whose norm lamb_moments took.
KERNEL(TYPED(lamb))(float *__restrict__ w, const float *__restrict__ m, const float *__restrict__ v, T *__restrict__ low, const Chunk *__restrict__ chunks, int first, const Rate *__restrict__ rates, const Control *__restrict__ control, float epsilon) {
  if (control->found_inf) return;
  Chunk c = chunks[first + blockIdx.x];
  Rate rate = rates[c.layer];
  float scale = 1.0f / control->correct1, root = 1.0f / control->correct_root2;
  for (int k = threadIdx.y * 8; k < c.size; k += blockDim.y * 8) {
    i64 i = c.weight + k;
    Eight a = load8(w + i), b = load8(m + i), d = load8(v + i);
    EACH8(j) a.v[j] = fmaf(-rate.rate, lamb_direction(a.v[j], b.v[j], d.v[j], scale, root, epsilon, rate.decay), a.v[j]);
    store8(w + i, a);
    if (low) store8(low + i, a);
  }
}
