// What optimisers need norms for: clipping, and the rates of LARS and LAMB, which each
// layer has for itself. The layers of the flat buffers are cut in chunks, of which a
// block takes one; the chunks' sums are added up in a fixed order. Nothing depends on
// the device. norms.go lays the tables out.

// Chunk is a piece of a layer: where it begins in the buffers of weights and of
// gradients, both multiples of 8, as is its size.
struct Chunk {
  i64 weight, gradient;
  int size, layer;
};

// Layer lists its chunks. A vector (a bias, a scale of a normalisation) has the plain
// rate and no weight decay.
struct Layer {
  int first, count, vector, unused;
};

// Rate is what a layer is updated with.
struct Rate {
  float rate, decay;
};

// Squares are two sums of a chunk: of the gradients' squares, or those of the direction
// of LAMB, and of the weights'.
struct Squares {
  double gradient, weight;
};

// layer_squares: squares[chunk] of gradients and, where they are given, of weights.
// Bytes: each read once.
KERNEL(layer_squares)(const float *__restrict__ w, const float *__restrict__ g, const Chunk *__restrict__ chunks, int first, Squares *__restrict__ squares) {
  SHARED(double, shared);
  int at = first + blockIdx.x;
  Chunk c = chunks[at];
  double sums[2] = {0, 0};
  for (int k = threadIdx.y * 8; k < c.size; k += blockDim.y * 8) {
    Eight d = load8(g + c.gradient + k);
    EACH8(j) sums[0] += (double)d.v[j] * (double)d.v[j];
    if (!w) continue;
    Eight a = load8(w + c.weight + k);
    EACH8(j) sums[1] += (double)a.v[j] * (double)a.v[j];
  }
  sum_rows<2>(sums, shared);
  if (threadIdx.y != 0) return;
  squares[at].gradient = sums[0];
  squares[at].weight = sums[1];
}

// sum_squares: what the chunks from first on left, count of them; thread 0 holds it.
DEVICE Squares sum_squares(const Squares *squares, int first, int count, double *shared) {
  double sums[2] = {0, 0};
  for (int k = threadIdx.y; k < count; k += blockDim.y) {
    sums[0] += squares[first + k].gradient;
    sums[1] += squares[first + k].weight;
  }
  sum_rows<2>(sums, shared);
  Squares s = {sums[0], sums[1]};
  return s;
}

// clip_norm: the factor that makes the norm of all gradients, divided by the loss
// scale, most at most: most/(norm + 1e-6), as torch.nn.utils.clip_grad_norm_. One block.
KERNEL(clip_norm)(const Squares *__restrict__ squares, int chunks, float most, Control *control) {
  SHARED(double, shared);
  Squares s = sum_squares(squares, 0, chunks, shared);
  if (threadIdx.y != 0 || control->found_inf) return;
  float f = (float)((double)most / (sqrt(s.gradient) / (double)control->loss_scale + 1e-6));
  control->clip = f < 1.0f ? f : 1.0f;
}

// lars_rates: lr·trust·‖w‖/(‖g‖ + decay·‖w‖) of each layer, lr where a norm is 0. A
// block takes a layer.
KERNEL(lars_rates)(const Squares *__restrict__ squares, const Layer *__restrict__ layers, int first, Rate *__restrict__ rates, const Control *__restrict__ control, float trust, float weight_decay) {
  SHARED(double, shared);
  int at = first + blockIdx.x;
  Layer l = layers[at];
  Squares s = sum_squares(squares, l.first, l.count, shared);
  if (threadIdx.y != 0) return;
  double local = 1.0, w = sqrt(s.weight), g = sqrt(s.gradient) * (double)gradient_factor(control, 0);
  if (!l.vector && w > 0 && g > 0) local = (double)trust * w / (g + (double)weight_decay * w);
  rates[at].rate = (float)((double)control->learning_rate * local);
  rates[at].decay = l.vector ? 0.0f : weight_decay;
}

// lamb_direction is m̂/(√v̂ + ε) + decay·w.
DEVICE float lamb_direction(float w, float m, float v, float scale, float root, float epsilon, float decay) {
  return fmaf(decay, w, m * scale / fmaf(sqrtf(v), root, epsilon));
}

// lamb_moments: m and v of Adam, and squares[chunk] of the direction and of the weights.
// Bytes: 16 read, 8 written a weight.
KERNEL(lamb_moments)(const float *__restrict__ w, const float *__restrict__ g, float *__restrict__ m, float *__restrict__ v, const Chunk *__restrict__ chunks, int first, const Layer *__restrict__ layers, Squares *__restrict__ squares, const Control *__restrict__ control, float beta1, float beta2, float epsilon, float weight_decay) {
  SHARED(double, shared);
  if (control->found_inf) return;
  int at = first + blockIdx.x;
  Chunk c = chunks[at];
  float inverse = gradient_factor(control, 0), other1 = 1.0f - beta1, other2 = 1.0f - beta2;
  float scale = 1.0f / control->correct1, root = 1.0f / control->correct_root2;
  float decay = layers[c.layer].vector ? 0.0f : weight_decay;
  double sums[2] = {0, 0};
  for (int k = threadIdx.y * 8; k < c.size; k += blockDim.y * 8) {
    i64 i = c.weight + k;
    Eight a = load8(w + i), d = load8(g + c.gradient + k), b = load8(m + i), e = load8(v + i);
    EACH8(j) {
      float step = d.v[j] * inverse;
      b.v[j] = fmaf(beta1, b.v[j], other1 * step);
      e.v[j] = fmaf(beta2, e.v[j], other2 * step * step);
      double r = (double)lamb_direction(a.v[j], b.v[j], e.v[j], scale, root, epsilon, decay);
      sums[0] += r * r;
      sums[1] += (double)a.v[j] * (double)a.v[j];
    }
    store8(m + i, b);
    store8(v + i, e);
  }
  sum_rows<2>(sums, shared);
  if (threadIdx.y != 0) return;
  squares[at].gradient = sums[0];
  squares[at].weight = sums[1];
}

// lamb_rates: lr·‖w‖/‖r‖ of each layer, lr where a norm is 0. A block takes a layer.
KERNEL(lamb_rates)(const Squares *__restrict__ squares, const Layer *__restrict__ layers, int first, Rate *__restrict__ rates, const Control *__restrict__ control, float weight_decay) {
  SHARED(double, shared);
  int at = first + blockIdx.x;
  Layer l = layers[at];
  Squares s = sum_squares(squares, l.first, l.count, shared);
  if (threadIdx.y != 0) return;
  double ratio = 1.0, w = sqrt(s.weight), r = sqrt(s.gradient);
  if (!l.vector && w > 0 && r > 0) ratio = w / r;
  rates[at].rate = (float)((double)control->learning_rate * ratio);
  rates[at].decay = l.vector ? 0.0f : weight_decay;
}

// grad_add: sum += g. Bytes: 12 an element. Both are aligned to 16 bytes, n is a
// multiple of 4.
KERNEL(grad_add)(float *__restrict__ sum, const float *__restrict__ g, i64 n) {
  for (i64 i = flat_start(); i < n / 4; i += flat_step()) {
    float4 a = reinterpret_cast<const float4 *>(sum)[i], b = reinterpret_cast<const float4 *>(g)[i];
    a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
    reinterpret_cast<float4 *>(sum)[i] = a;
  }
}

// grad_mean: g = (sum + g)/parts. Bytes: 12 an element; as grad_add.
KERNEL(grad_mean)(float *__restrict__ g, const float *__restrict__ sum, i64 n, int parts) {
  float by = (float)parts;
  for (i64 i = flat_start(); i < n / 4; i += flat_step()) {
    float4 a = reinterpret_cast<const float4 *>(g)[i], b = reinterpret_cast<const float4 *>(sum)[i];
    a.x = (a.x + b.x) / by, a.y = (a.y + b.y) / by, a.z = (a.z + b.z) / by, a.w = (a.w + b.w) / by;
    reinterpret_cast<float4 *>(g)[i] = a;
  }
}
