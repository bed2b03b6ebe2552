// What classification and regression networks have beside the rest: averages over
// windows and over whole maps, LeakyReLU, tanh, softmax cross entropy, L1.

// global_avg_pool: y[n][channel] = the mean over the points of sample n. grid.y
// counts samples. Bytes: x read once.
KERNEL(TYPED(global_avg_pool))(const T *__restrict__ x, int x_pitch, T *__restrict__ y, int y_pitch, i64 points, int channels) {
  SHARED(float, shared);
  int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  bool live = channel < channels;
  Eight sum = zeros();
  if (live) {
    const T *from = x + (i64)blockIdx.y * points * x_pitch + channel;
#pragma unroll 2
    for (i64 p = threadIdx.y; p < points; p += blockDim.y) {
      Eight v = load8(from + p * x_pitch);
      EACH8(j) sum.v[j] += v.v[j];
    }
  }
  sum_rows<8>(sum.v, shared);
  if (!live || threadIdx.y != 0) return;
  EACH8(j) sum.v[j] /= (float)points;
  store8(y + (i64)blockIdx.y * y_pitch + channel, sum);
}

// global_avg_pool_backward: dx = dy of its sample / points + acc. Bytes: dx written
// (and acc read).
KERNEL(TYPED(global_avg_pool_backward))(const T *__restrict__ dy, int dy_pitch, const T *acc, int acc_pitch, T *dx, int dx_pitch, i64 points, i64 rows, i64 rows_per_chunk, int channels) {
  Place p = place(rows, rows_per_chunk, channels);
  for (i64 row = p.row; row < p.end; row += p.step) {
    Eight v = load8(dy + row / points * dy_pitch + p.channel);
    EACH8(j) v.v[j] /= (float)points;
    if (acc) {
      Eight a = load8(acc + row * acc_pitch + p.channel);
      EACH8(j) v.v[j] += a.v[j];
    }
    store8(dx + row * dx_pitch + p.channel, v);
  }
}

// avg_pool: the mean of each window, which lies inside the map. As max_pool.
KERNEL(TYPED(avg_pool))(const T *__restrict__ x, int x_pitch, T *__restrict__ y, int y_pitch, int channels, int batch, int in_d, int in_h, int in_w, int out_d, int out_h, int out_w, int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h, int pad_w) {
  int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (channel >= channels) return;
  float taps = (float)(kernel_d * kernel_h * kernel_w);
  i64 lines = (i64)batch * out_d * out_h;
  for (i64 line = blockIdx.y; line < lines; line += gridDim.y) {
    int oh = (int)(line % out_h);
    i64 rest = line / out_h;
    int od = (int)(rest % out_d);
    i64 n = rest / out_d;
    for (int ow = threadIdx.y; ow < out_w; ow += blockDim.y) {
      Eight sum = zeros();
      for (int a = 0; a < kernel_d; a++) {
        for (int b = 0; b < kernel_h; b++) {
          const T *from = x + (((n * in_d + od * stride_d + a) * in_h + oh * stride_h + b) * in_w + ow * stride_w) * x_pitch + channel;
          for (int c = 0; c < kernel_w; c++) {
            Eight v = load8(from + (i64)c * x_pitch);
            EACH8(j) sum.v[j] += v.v[j];
          }
        }
      }
      EACH8(j) sum.v[j] /= taps;
      store8(y + (line * out_w + ow) * y_pitch + channel, sum);
    }
  }
}

// avg_pool_backward: dx = Σ dy / taps over the windows that hold it, + acc.
KERNEL(TYPED(avg_pool_backward))(const T *__restrict__ dy, int dy_pitch, const T *acc, int acc_pitch, T *dx, int dx_pitch, int channels, int batch, int in_d, int in_h, int in_w, int out_d, int out_h, int out_w, int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h, int pad_w) {
  int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (channel >= channels) return;
  float taps = (float)(kernel_d * kernel_h * kernel_w);
  i64 lines = (i64)batch * in_d * in_h;
  for (i64 line = blockIdx.y; line < lines; line += gridDim.y) {
    int h = (int)(line % in_h);
    i64 rest = line / in_h;
    int d = (int)(rest % in_d);
    i64 n = rest / in_d;
    int d_last = least(d / stride_d, out_d - 1), h_last = least(h / stride_h, out_h - 1);
    int d_first = most(d - kernel_d + stride_d, 0) / stride_d, h_first = most(h - kernel_h + stride_h, 0) / stride_h;
    for (int w = threadIdx.y; w < in_w; w += blockDim.y) {
      int w_last = least(w / stride_w, out_w - 1), w_first = most(w - kernel_w + stride_w, 0) / stride_w;
      Eight sum = zeros();
      for (int od = d_first; od <= d_last; od++) {
        for (int oh = h_first; oh <= h_last; oh++) {
          for (int ow = w_first; ow <= w_last; ow++) {
            Eight v = load8(dy + (((n * out_d + od) * out_h + oh) * out_w + ow) * dy_pitch + channel);
            EACH8(j) sum.v[j] += v.v[j];
          }
        }
      }
      EACH8(j) sum.v[j] /= taps;
      i64 row = line * in_w + w;
      if (acc) {
        Eight a = load8(acc + row * acc_pitch + channel);
        EACH8(j) sum.v[j] += a.v[j];
      }
      store8(dx + row * dx_pitch + channel, sum);
    }
  }
}

// leaky_relu: y = x where x > 0, else slope·x; with gate (the output of an earlier
// one) y = x where gate > 0, else slope·x, + acc: its gradient.
KERNEL(TYPED(leaky_relu))(const T *x, int x_pitch, const T *gate, int gate_pitch, const T *acc, int acc_pitch, T *y, int y_pitch, i64 rows, i64 rows_per_chunk, int channels, float slope) {
  Place p = place(rows, rows_per_chunk, channels);
#pragma unroll 2
  for (i64 row = p.row; row < p.end; row += p.step) {
    Eight v = load8(x + row * x_pitch + p.channel), g = v;
    if (gate) g = load8(gate + row * gate_pitch + p.channel);
    EACH8(j) v.v[j] = g.v[j] > 0.0f ? v.v[j] : slope * v.v[j];
    if (acc) {
      Eight a = load8(acc + row * acc_pitch + p.channel);
      EACH8(j) v.v[j] += a.v[j];
    }
    store8(y + row * y_pitch + p.channel, v);
  }
}

KERNEL(TYPED(tanh))(const T *x, int x_pitch, T *y, int y_pitch, i64 rows, i64 rows_per_chunk, int channels) {
  Place p = place(rows, rows_per_chunk, channels);
  for (i64 row = p.row; row < p.end; row += p.step) {
    Eight v = load8(x + row * x_pitch + p.channel);
    EACH8(j) v.v[j] = tanhf(v.v[j]);
    store8(y + row * y_pitch + p.channel, v);
  }
}

// tanh_backward: dx = dy·(1 − y²) + acc.
KERNEL(TYPED(tanh_backward))(const T *y, int y_pitch, const T *dy, int dy_pitch, const T *acc, int acc_pitch, T *dx, int dx_pitch, i64 rows, i64 rows_per_chunk, int channels) {
  Place p = place(rows, rows_per_chunk, channels);
  for (i64 row = p.row; row < p.end; row += p.step) {
    Eight o = load8(y + row * y_pitch + p.channel), d = load8(dy + row * dy_pitch + p.channel);
    EACH8(j) d.v[j] *= 1.0f - o.v[j] * o.v[j];
    if (acc) {
      Eight a = load8(acc + row * acc_pitch + p.channel);
      EACH8(j) d.v[j] += a.v[j];
    }
    store8(dx + row * dx_pitch + p.channel, d);
  }
}

// softmax_sums gives, to every thread of a block that is 1 wide, the greatest logit of
// a row and Σ exp(z − greatest).
DEVICE void TYPED(softmax_sums)(const T *__restrict__ z, int classes, float *shared, float &greatest, float &sum) {
  float m = to_float(z[0]);
  for (int j = threadIdx.y; j < classes; j += blockDim.y) {
    float v = to_float(z[j]);
    m = v > m ? v : m;
  }
  shared[threadIdx.y] = m;
  __syncthreads();
  for (int j = 0; j < (int)blockDim.y; j++) m = shared[j] > m ? shared[j] : m;
  __syncthreads();
  float s[1] = {0.0f};
  for (int j = threadIdx.y; j < classes; j += blockDim.y) s[0] += expf(to_float(z[j]) - m);
  sum_rows<1>(s, shared);
  if (threadIdx.y == 0) shared[0] = s[0];
  __syncthreads();
  greatest = m, sum = shared[0];
  __syncthreads();
}

// softmax_ce: partial[block] = {Σ over its rows of −Σ q·log softmax(z), hits, 0, 0, 0}
// with q = (1 − smoothing) of class t and smoothing/classes of all. A hit is a row
// whose first greatest logit is class t. A block takes row after row, 1 thread wide.
// Bytes: z read three times, from the cache after the first.
KERNEL(TYPED(softmax_ce))(const T *__restrict__ z, int z_pitch, const float *__restrict__ t, float *__restrict__ partial, i64 rows, int classes, float smoothing) {
  SHARED(float, shared);
  float loss = 0.0f;
  u32 hits = 0;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const T *from = z + row * z_pitch;
    float m, sum;
    TYPED(softmax_sums)(from, classes, shared, m, sum);
    int truth = (int)t[row];
    float all[1] = {0.0f}, before[1] = {0.0f};
    for (int j = threadIdx.y; j < classes; j += blockDim.y) {
      float v = to_float(from[j]);
      all[0] += v - m;
      before[0] += j < truth && v == m ? 1.0f : 0.0f;
    }
    sum_rows<1>(all, shared);
    sum_rows<1>(before, shared);
    float own = to_float(from[truth]) - m;
    loss += logf(sum) - (1.0f - smoothing) * own - smoothing / (float)classes * all[0];
    hits += own == 0.0f && before[0] == 0.0f;
  }
  if (threadIdx.y != 0) return;
  float *to = partial + (i64)blockIdx.x * 8;
  to[0] = loss;
  to[1] = __uint_as_float(hits);
  for (int k = 2; k < 5; k++) to[k] = 0.0f;
}

// softmax_ce_backward: dz = dloss·scale·(softmax(z) − q)/rows, zero in the padding.
KERNEL(TYPED(softmax_ce_backward))(const T *__restrict__ z, int z_pitch, const float *__restrict__ t, const float *__restrict__ dloss, const Control *__restrict__ control, T *__restrict__ dz, int dz_pitch, i64 rows, int classes, float smoothing) {
  SHARED(float, shared);
  float scale = (dloss ? dloss[0] : 1.0f) * (control ? control->loss_scale : 1.0f) / (float)rows;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const T *from = z + row * z_pitch;
    float m, sum;
    TYPED(softmax_sums)(from, classes, shared, m, sum);
    int truth = (int)t[row];
    for (int j = threadIdx.y; j < dz_pitch; j += blockDim.y) {
      float d = 0.0f;
      if (j < classes) d = scale * (expf(to_float(from[j]) - m) / sum - smoothing / (float)classes - (j == truth ? 1.0f - smoothing : 0.0f));
      dz[row * dz_pitch + j] = from_float<T>(d);
    }
  }
}

// l1: partial[block] = {Σ |y − t|, 0, 0, 0, 0}, and in channel 0 weight times
// |e^14y − e^14t| for each of the channels, so that their mean is over channel 0. As bce.
KERNEL(TYPED(l1))(const T *__restrict__ y, int y_pitch, const float *__restrict__ t, float *__restrict__ partial, i64 rows, int channels, float weight) {
  SHARED(float, shared);
  float sum[1] = {0.0f};
  i64 n = rows * channels;
  for (i64 i = (i64)blockIdx.x * blockDim.y + threadIdx.y; i < n; i += (i64)gridDim.x * blockDim.y) {
    i64 row = channels == 1 ? i : i / channels;
    float v = to_float(y[row * y_pitch + (i - row * channels)]), target = t[i];
    sum[0] += fabsf(v - target);
    if (weight != 0.0f && i == row * channels) sum[0] += weight * (float)channels * fabsf(expf(14.0f * v) - expf(14.0f * target));
  }
  sum_rows<1>(sum, shared);
  if (threadIdx.y != 0) return;
  float *to = partial + (i64)blockIdx.x * 8;
  to[0] = sum[0];
  for (int k = 1; k < 5; k++) to[k] = 0.0f;
}

// l1_backward: dy = dloss·scale·sign(y − t)/elements, in channel 0 times 1 + weight·14·
// e^14y·channels; zero in the padding.
KERNEL(TYPED(l1_backward))(const T *__restrict__ y, int y_pitch, const float *__restrict__ t, const float *__restrict__ dloss, const Control *__restrict__ control, T *__restrict__ dy, int dy_pitch, i64 rows, int channels, float weight) {
  float scale = (dloss ? dloss[0] : 1.0f) * (control ? control->loss_scale : 1.0f) / (float)(rows * channels);
  for (i64 i = flat_start(); i < rows * dy_pitch; i += flat_step()) {
    i64 row = dy_pitch == 1 ? i : i / dy_pitch;
    int channel = (int)(i - row * dy_pitch);
    float d = 0.0f;
    if (channel < channels) {
      float out = to_float(y[row * y_pitch + channel]), v = out - t[row * channels + channel];
      d = v > 0.0f ? scale : v < 0.0f ? -scale : scale * 0.0f * v; // a NaN stays one
      if (weight != 0.0f && channel == 0) d *= 1.0f + weight * 14.0f * (float)channels * expf(14.0f * out);
    }
    dy[i] = from_float<T>(d);
  }
}
