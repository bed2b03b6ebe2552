// Optimisers over flat float32 buffers, with a copy of the weights in T. Found_inf
// leaves everything as it is.

// adam is engine/reference's adam: w −= lr/(1−β₁ᵗ)·m/(√v/√(1−β₂ᵗ)+ε).
KERNEL(TYPED(adam))(float *__restrict__ w, const float *__restrict__ g, float *__restrict__ m, float *__restrict__ v, T *__restrict__ low, i64 n, const Control *__restrict__ control, float beta1, float beta2, float epsilon, float weight_decay, int unscaled) {
  if (control->found_inf) return;
  float inverse = unscaled ? 1.0f : 1.0f / control->loss_scale;
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
      a.v[j] -= rate * b.v[j] / fmaf(sqrtf(c.v[j]), root, epsilon);
    }
    store8(w + i * 8, a);
    store8(m + i * 8, b);
    store8(v + i * 8, c);
    if (low) store8(low + i * 8, a);
  }
  for (i64 i = vectors * 8 + flat_start(); i < n; i += flat_step()) {
    float a = w[i], step = fmaf(weight_decay, a, g[i] * inverse);
    float b = fmaf(beta1, m[i], other1 * step), c = fmaf(beta2, v[i], other2 * step * step);
    a -= rate * b / fmaf(sqrtf(c), root, epsilon);
    w[i] = a;
    m[i] = b;
    v[i] = c;
    if (low) low[i] = from_float<T>(a);
  }
}

// sgd: buf ← momentum·buf + g; w ← w − lr·buf; without buffer w ← w − lr·g.
KERNEL(TYPED(sgd))(float *__restrict__ w, const float *__restrict__ g, float *__restrict__ buffer, T *__restrict__ low, i64 n, const Control *__restrict__ control, float momentum, float weight_decay, int unscaled) {
  if (control->found_inf) return;
  float inverse = unscaled ? 1.0f : 1.0f / control->loss_scale, rate = control->learning_rate;
  bool aligned = aligned16(address(w) | address(g) | address(buffer) | address(low));
  i64 vectors = aligned ? n / 8 : 0;
  for (i64 i = flat_start(); i < vectors; i += flat_step()) {
    Eight a = load8(w + i * 8), d = load8(g + i * 8);
    EACH8(j) d.v[j] = fmaf(weight_decay, a.v[j], d.v[j] * inverse);
    if (buffer) {
      Eight b = load8(buffer + i * 8);
      EACH8(j) d.v[j] = fmaf(momentum, b.v[j], d.v[j]);
      store8(buffer + i * 8, d);
    }
    EACH8(j) a.v[j] = fmaf(-rate, d.v[j], a.v[j]);
    store8(w + i * 8, a);
    if (low) store8(low + i * 8, a);
  }
  for (i64 i = vectors * 8 + flat_start(); i < n; i += flat_step()) {
    float a = w[i], d = fmaf(weight_decay, a, g[i] * inverse);
    if (buffer) {
      d = fmaf(momentum, buffer[i], d);
      buffer[i] = d;
    }
    a = fmaf(-rate, d, a);
    w[i] = a;
    if (low) low[i] = from_float<T>(a);
  }
}
