// A convolution of window 1 with one output channel on channels-last maps of
// element type T: a dot product a row, its outer product, its weighted sum.

// head_forward: z = x·w + bias. lanes threads of a warp, a power of two, share a
// row: they read consecutive vectors, and add up by shuffles. Bytes: x read, 4 a
// row written. The grid covers the rows in whole warps, and every thread of a warp
// takes part in the shuffles.
KERNEL(TYPED(head_forward))(const T *__restrict__ x, int x_pitch, const float *__restrict__ w, const float *__restrict__ bias, float *__restrict__ z, i64 rows, int channels, int lanes) {
  int lane = threadIdx.x & (lanes - 1);
  float b = bias ? bias[0] : 0.0f;
  i64 step = flat_step() / lanes;
  // All threads of a warp make the same number of turns: a row beyond the last
  // counts as zeros.
  for (i64 row = flat_start() / lanes, first = (flat_start() & ~31ll) / lanes; first < rows; row += step, first += step) {
    float sum = 0.0f;
    if (row < rows) {
      for (int channel = lane * 8; channel < channels; channel += lanes * 8) {
        Eight v = load8(x + row * x_pitch + channel), k = load8(w + channel);
        EACH8(j) sum = fmaf(v.v[j], k.v[j], sum);
      }
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (row < rows && lane == 0) z[row] = sum + b;
  }
}

// head_backward_data: dx = dz·w + acc. Bytes: 4 a row read, dx written.
KERNEL(TYPED(head_backward_data))(const float *__restrict__ dz, const float *__restrict__ w, const T *acc, int acc_pitch, T *dx, int dx_pitch, i64 rows, i64 rows_per_chunk, int channels) {
  Place p = place(rows, rows_per_chunk, channels);
  if (!p.live) return;
  Eight k = load8(w + p.channel);
#pragma unroll 2
  for (i64 row = p.row; row < p.end; row += p.step) {
    float d = dz[row];
    Eight v;
    EACH8(j) v.v[j] = d * k.v[j];
    if (acc) {
      Eight a = load8(acc + row * acc_pitch + p.channel);
      EACH8(j) v.v[j] += a.v[j];
    }
    store8(dx + row * dx_pitch + p.channel, v);
  }
}

// head_backward_weights: partial[chunk] = {Σ dz·x a channel, Σ dz at the place
// after the channels}. Bytes: x and dz read once.
KERNEL(TYPED(head_backward_weights))(const T *__restrict__ x, int x_pitch, const float *__restrict__ dz, float *__restrict__ partial, int partial_pitch, i64 rows, i64 rows_per_chunk, int channels) {
  SHARED(float, shared);
  Place p = place(rows, rows_per_chunk, channels);
  float sums[9];
#pragma unroll
  for (int j = 0; j < 9; j++) sums[j] = 0.0f;
#pragma unroll 2
  for (i64 row = p.row; row < p.end; row += p.step) {
    Eight v = load8(x + row * x_pitch + p.channel);
    float d = dz[row];
    EACH8(j) sums[j] = fmaf(d, v.v[j], sums[j]);
    sums[8] += d;
  }
  sum_rows<9>(sums, shared);
  if (!p.live || threadIdx.y != 0) return;
  float *to = partial + (i64)blockIdx.y * partial_pitch;
  Eight w;
  EACH8(j) w.v[j] = sums[j];
  store8(to + p.channel, w);
  if (p.channel == 0) to[channels] = sums[8];
}
