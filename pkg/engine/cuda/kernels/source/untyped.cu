// Kernels that know no element type: what follows a reduction, the optimiser's
// control block, fill, and the ceilings of arithmetic.

// bn_finalize combines the chunks of bn_stats: Σ nᵢ·meanᵢ and
// Σ (M2ᵢ + nᵢ·meanᵢ²) in double, a column of chunks by 32 threads. It saves mean
// and 1/√(var+ε) and moves the running statistics, the variance unbiased. Its
// input is 8 bytes a chunk and channel: below a hundredth of the map's.
WIDE(bn_finalize)(const float *__restrict__ partial, int chunks, i64 rows, i64 rows_per_chunk, int channels, float epsilon, float momentum, float *__restrict__ mean, float *__restrict__ invstd, float *__restrict__ running_mean, float *__restrict__ running_var) {
  SHARED(double, shared);
  int channel = blockIdx.x * blockDim.x + threadIdx.x;
  double sums[2] = {0, 0};
  // The shift keeps the two sums apart where the mean is large beside the deviation.
  double shift = channel < channels ? (double)partial[channel] : 0.0;
  if (channel < channels) {
#pragma unroll 4
    for (int chunk = threadIdx.y; chunk < chunks; chunk += blockDim.y) {
      const float *from = partial + (i64)chunk * 2 * channels + channel;
      double n = (double)least(rows_per_chunk, rows - chunk * rows_per_chunk), d = (double)from[0] - shift;
      sums[0] += n * d;
      sums[1] += (double)from[channels] + n * d * d;
    }
  }
  sum_rows<2>(sums, shared);
  if (channel >= channels || threadIdx.y != 0) return;
  double m = sums[0] / (double)rows, squares = sums[1] - m * sums[0], variance = squares / (double)rows;
  m += shift;
  if (variance < 0) variance = 0;
  mean[channel] = (float)m;
  invstd[channel] = (float)(1.0 / sqrt(variance + (double)epsilon));
  running_mean[channel] = (float)((1.0 - (double)momentum) * (double)running_mean[channel] + (double)momentum * m);
  running_var[channel] = (float)((1.0 - (double)momentum) * (double)running_var[channel] + (double)momentum * variance * ((double)rows / (double)(rows - 1)));
}

// bn_sums is bn_finalize of sums that are there already: Σ x and Σ x² of each channel.
KERNEL(bn_sums)(const float *__restrict__ sum, const float *__restrict__ square, i64 rows, int channels, float epsilon, float momentum, float *__restrict__ mean, float *__restrict__ invstd, float *__restrict__ running_mean, float *__restrict__ running_var) {
  for (i64 i = flat_start(); i < channels; i += flat_step()) {
    double m = (double)sum[i] / (double)rows, variance = (double)square[i] / (double)rows - m * m;
    if (variance < 0) variance = 0; // a NaN stays one
    mean[i] = (float)m;
    invstd[i] = (float)(1.0 / sqrt(variance + (double)epsilon));
    running_mean[i] = (float)((1.0 - (double)momentum) * (double)running_mean[i] + (double)momentum * m);
    running_var[i] = (float)((1.0 - (double)momentum) * (double)running_var[i] + (double)momentum * variance * ((double)rows / (double)(rows - 1)));
  }
}

// sum_chunks: column sums of partial [chunks][pitch], the first n0 columns to out0,
// the next n1 to out1; in double, in a fixed order.
WIDE(sum_chunks)(const float *__restrict__ partial, int partial_pitch, int chunks, float *__restrict__ out0, int n0, float *__restrict__ out1, int n1) {
  SHARED(double, shared);
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  double sum[1] = {0};
  if (column < n0 + n1) {
#pragma unroll 4
    for (int chunk = threadIdx.y; chunk < chunks; chunk += blockDim.y) sum[0] += (double)partial[(i64)chunk * partial_pitch + column];
  }
  sum_rows<1>(sum, shared);
  if (column >= n0 + n1 || threadIdx.y != 0) return;
  if (column < n0)
    out0[column] = (float)sum[0];
  else
    out1[column - n0] = (float)sum[0];
}

// bce_finalize adds the blocks of bce up: {loss, TP, FP, FN, TN} in 8 words each.
// One block, 256 threads high.
KERNEL(bce_finalize)(const float *__restrict__ partial, int blocks, i64 elements, float *__restrict__ loss, i64 *__restrict__ counts, int accumulate) {
  SHARED(double, shared);
  double sums[5] = {0, 0, 0, 0, 0}; // counts are exact in double up to 2^53
  for (int block = threadIdx.y; block < blocks; block += blockDim.y) {
    const float *from = partial + (i64)block * 8;
    sums[0] += (double)from[0];
#pragma unroll
    for (int k = 1; k < 5; k++) sums[k] += (double)__float_as_uint(from[k]);
  }
  sum_rows<5>(sums, shared);
  if (threadIdx.y != 0) return;
  loss[0] = (float)(sums[0] / (double)elements);
  if (!counts) return;
#pragma unroll
  for (int k = 0; k < 4; k++) counts[k] = (accumulate ? counts[k] : 0) + (i64)sums[1 + k];
}

// dice_maps adds the chunks of dice_bce up, a block a map: {(1−w)·Σ bce + w·D·points,
// TP, FP, FN, TN, I, S, 0}, with I = 2Σpt+1, S = Σp+Σt+1, D = 1−I/S, so that
// bce_finalize makes the loss of it. 256 threads high.
KERNEL(dice_maps)(const float *__restrict__ partial, int chunks, i64 points, float weight, float *__restrict__ maps) {
  SHARED(double, shared);
  double sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  for (int chunk = threadIdx.y; chunk < chunks; chunk += blockDim.y) {
    const float *from = partial + ((i64)blockIdx.x * chunks + chunk) * 8;
#pragma unroll
    for (int k = 0; k < 8; k++) sums[k] += k < 1 || k > 4 ? (double)from[k] : (double)__float_as_uint(from[k]);
  }
  sum_rows<8>(sums, shared);
  if (threadIdx.y != 0) return;
  double above = 2.0 * sums[5] + 1.0, below = sums[6] + sums[7] + 1.0;
  float *to = maps + (i64)blockIdx.x * 8;
  to[0] = (float)((1.0 - (double)weight) * sums[0] + (double)weight * (1.0 - above / below) * (double)points);
  for (int k = 1; k < 5; k++) to[k] = __uint_as_float((u32)sums[k]);
  to[5] = (float)above;
  to[6] = (float)below;
  to[7] = 0.0f;
}

// step_begin: one thread. Updates that were left out do not count for Adam.
KERNEL(step_begin)(Control *control, float beta1, float beta2) {
  double t = (double)(control->step - control->skipped);
  control->found_inf = 0;
  control->correct1 = (float)(1.0 - pow((double)beta1, t));
  control->correct_root2 = (float)sqrt(1.0 - pow((double)beta2, t));
  control->clip = 1.0f;
}

// grad_check: found_inf where a gradient is not finite. Threads that find one all
// write the same word, so that their order does not matter.
KERNEL(grad_check)(const float *__restrict__ g, i64 n, Control *control) {
  bool bad = false;
  i64 vectors = aligned16(address(g)) ? n / 4 : 0;
  for (i64 i = flat_start(); i < vectors; i += flat_step()) {
    float4 v = reinterpret_cast<const float4 *>(g)[i];
    bad |= !(finite(v.x) && finite(v.y) && finite(v.z) && finite(v.w));
  }
  for (i64 i = vectors * 4 + flat_start(); i < n; i += flat_step()) bad |= !finite(g[i]);
  if (bad) atomicOr(&control->found_inf, 1);
}

// grad_unscale: the same, and g /= loss scale (a power of two, so that the
// reciprocal is exact).
KERNEL(grad_unscale)(float *__restrict__ g, i64 n, Control *control) {
  float inverse = 1.0f / control->loss_scale;
  bool bad = false;
  i64 vectors = aligned16(address(g)) ? n / 4 : 0;
  for (i64 i = flat_start(); i < vectors; i += flat_step()) {
    float4 v = reinterpret_cast<float4 *>(g)[i];
    bad |= !(finite(v.x) && finite(v.y) && finite(v.z) && finite(v.w));
    v.x *= inverse, v.y *= inverse, v.z *= inverse, v.w *= inverse;
    reinterpret_cast<float4 *>(g)[i] = v;
  }
  for (i64 i = vectors * 4 + flat_start(); i < n; i += flat_step()) {
    bad |= !finite(g[i]);
    g[i] *= inverse;
  }
  if (bad) atomicOr(&control->found_inf, 1);
}

// scale_update: one thread, after the update.
KERNEL(scale_update)(Control *control, float growth, float backoff, int interval) {
  if (control->found_inf) {
    control->loss_scale *= backoff;
    control->good_steps = 0;
    control->skipped++;
    return;
  }
  if (++control->good_steps < interval) return;
  float grown = control->loss_scale * growth;
  if (finite(grown)) control->loss_scale = grown;
  control->good_steps = 0;
}

// take_rows: row i of dst is row rows[i] of src. Bytes: 8 an element.
KERNEL(take_rows)(const float *__restrict__ src, const int *__restrict__ rows, float *__restrict__ dst, i64 n, int width) {
  for (i64 i = flat_start(); i < n; i += flat_step()) dst[i] = src[(i64)rows[i / width] * width + i % width];
}

KERNEL(fill_u32)(u32 *__restrict__ dst, int value, i64 n) {
  i64 vectors = aligned16(address(dst)) ? n / 4 : 0;
  uint4 v;
  v.x = v.y = v.z = v.w = (u32)value;
  for (i64 i = flat_start(); i < vectors; i += flat_step()) reinterpret_cast<uint4 *>(dst)[i] = v;
  for (i64 i = vectors * 4 + flat_start(); i < n; i += flat_step()) dst[i] = (u32)value;
}

// fma_ceiling: 16 independent chains of multiply-adds a thread, which hides their
// latency of 4 cycles. Each adds 1 an iteration; the result must not be known to
// the compiler, so that the one comes from memory.
KERNEL(fma_ceiling)(float *__restrict__ out, int iterations) {
  float one = (float)blockDim.y, sums[16];
#pragma unroll
  for (int k = 0; k < 16; k++) sums[k] = 0.0f;
  for (int i = 0; i < iterations; i++) {
#pragma unroll
    for (int k = 0; k < 16; k++) sums[k] = fmaf(sums[k], one, one);
  }
  float most_of = sums[0];
#pragma unroll
  for (int k = 1; k < 16; k++) most_of = most(most_of, sums[k]);
  out[flat_start()] = most_of;
}

// mma_product: c += a·b of a warp on the tensor cores, a 16×16, b 16×8, where each
// element of a is the word's half and each of b is 1.
#ifndef LOCKSTEP_HOST
template <class E> struct mma;
template <> struct mma<f16> {
  DEVICE u32 ones() { return 0x3c003c00u; }
  DEVICE void add(float *c, u32 a, u32 b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a), "r"(b));
  }
};
template <> struct mma<bf16> {
  DEVICE u32 ones() { return 0x3f803f80u; }
  DEVICE void add(float *c, u32 a, u32 b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a), "r"(b));
  }
};
#else
template <class E> struct mma { // the sum over 16 products of ones
  DEVICE u32 ones() { return 1; }
  DEVICE void add(float *c, u32 a, u32 b) {
    for (int k = 0; k < 4; k++) c[k] += (float)(16 * a * b);
  }
};
#endif

template <class E> DEVICE void mma_ceiling(float *out, int iterations) {
  float c[8][4];
#pragma unroll
  for (int k = 0; k < 8; k++)
#pragma unroll
    for (int i = 0; i < 4; i++) c[k][i] = 0.0f;
  u32 a = mma<E>::ones(), b = a;
  for (int i = 0; i < iterations; i++) {
#pragma unroll
    for (int k = 0; k < 8; k++) mma<E>::add(c[k], a, b);
  }
  float most_of = 0.0f;
#pragma unroll
  for (int k = 0; k < 8; k++)
#pragma unroll
    for (int i = 0; i < 4; i++) most_of = most(most_of, c[k][i]);
  out[flat_start()] = most_of;
}
KERNEL(mma_ceiling_f16)(float *__restrict__ out, int iterations) { mma_ceiling<f16>(out, iterations); }
KERNEL(mma_ceiling_bf16)(float *__restrict__ out, int iterations) { mma_ceiling<bf16>(out, iterations); }
