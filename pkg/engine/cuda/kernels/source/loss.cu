// Binary cross entropy of logits of element type T with float32 targets, and the
// counts of metric.Counts in the same pass.

// bce: partial[block] = {Σ max(z,0) − z·t + log(1+e^−|z|), TP, FP, FN, TN}. Blocks
// are 1 wide and 256 high. Bytes: z and t read once.
KERNEL(TYPED(bce))(const T *__restrict__ z, int z_pitch, const float *__restrict__ t, float *__restrict__ partial, i64 rows, int channels) {
  SHARED(float, shared);
  float sum[1] = {0.0f};
  u32 counts[4] = {0, 0, 0, 0};
  i64 n = rows * channels;
  for (i64 i = (i64)blockIdx.x * blockDim.y + threadIdx.y; i < n; i += (i64)gridDim.x * blockDim.y) {
    i64 row = channels == 1 ? i : i / channels;
    float v = to_float(z[row * z_pitch + (i - row * channels)]), target = t[i];
    sum[0] += (v > 0.0f ? v : 0.0f * v) - v * target + log1pf(expf(-fabsf(v))); // 0·v: a NaN stays one
    bool truth = target > 0.5f, said = v > 0.0f;
    counts[0] += truth && said;
    counts[1] += !truth && said;
    counts[2] += truth && !said;
    counts[3] += !truth && !said;
  }
  sum_rows<1>(sum, shared);
  sum_rows<4>(counts, reinterpret_cast<u32 *>(shared));
  if (threadIdx.y != 0) return;
  float *to = partial + (i64)blockIdx.x * 8;
  to[0] = sum[0];
  for (int k = 0; k < 4; k++) to[1 + k] = __uint_as_float(counts[k]);
}

// bce_backward: dz = dloss·scale·(σ(z) − t)/elements, zero in the padding. Bytes: z
// and t read, dz written.
KERNEL(TYPED(bce_backward))(const T *__restrict__ z, int z_pitch, const float *__restrict__ t, const float *__restrict__ dloss, const Control *__restrict__ control, T *__restrict__ dz, int dz_pitch, i64 rows, int channels) {
  float scale = (dloss ? dloss[0] : 1.0f) * (control ? control->loss_scale : 1.0f) / (float)(rows * channels);
  for (i64 i = flat_start(); i < rows * dz_pitch; i += flat_step()) {
    i64 row = dz_pitch == 1 ? i : i / dz_pitch;
    int channel = (int)(i - row * dz_pitch);
    float d = 0.0f;
    if (channel < channels) {
      float v = to_float(z[row * z_pitch + channel]);
      d = scale * (1.0f / (1.0f + expf(-v)) - t[row * channels + channel]);
    }
    dz[i] = from_float<T>(d);
  }
}

// dice_bce: of a chunk of one map, a channel of a sample, partial[map][chunk] =
// {Σ of bce, TP, FP, FN, TN, Σ p·t, Σ p, Σ t}, p = σ(z). grid.x counts chunks, grid.y
// maps. Blocks are 1 wide and 256 high. Bytes: z and t read once.
KERNEL(TYPED(dice_bce))(const T *__restrict__ z, int z_pitch, const float *__restrict__ t, float *__restrict__ partial, i64 points, int channels) {
  SHARED(float, shared);
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  u32 counts[4] = {0, 0, 0, 0};
  i64 sample = blockIdx.y / channels;
  int channel = (int)(blockIdx.y - sample * channels);
  for (i64 i = (i64)blockIdx.x * blockDim.y + threadIdx.y; i < points; i += (i64)gridDim.x * blockDim.y) {
    i64 row = sample * points + i;
    float v = to_float(z[row * z_pitch + channel]), target = t[row * channels + channel];
    float p = 1.0f / (1.0f + expf(-v));
    sums[0] += (v > 0.0f ? v : 0.0f * v) - v * target + log1pf(expf(-fabsf(v))); // as bce
    sums[1] += p * target;
    sums[2] += p;
    sums[3] += target;
    bool truth = target > 0.5f, said = v > 0.0f;
    counts[0] += truth && said;
    counts[1] += !truth && said;
    counts[2] += truth && !said;
    counts[3] += !truth && !said;
  }
  sum_rows<4>(sums, shared);
  sum_rows<4>(counts, reinterpret_cast<u32 *>(shared));
  if (threadIdx.y != 0) return;
  float *to = partial + ((i64)blockIdx.y * gridDim.x + blockIdx.x) * 8;
  to[0] = sums[0];
  for (int k = 0; k < 4; k++) to[1 + k] = __uint_as_float(counts[k]);
  for (int k = 1; k < 4; k++) to[4 + k] = sums[k];
}

// dice_bce_backward: dz = dloss·scale·((1−w)·(p−t)/elements − w·p·(1−p)·(2t·S−I)/(S²·maps)),
// zero in the padding; I and S of each map are what dice_maps left. Bytes: z and t
// read, dz written.
KERNEL(TYPED(dice_bce_backward))(const T *__restrict__ z, int z_pitch, const float *__restrict__ t, const float *__restrict__ maps, const float *__restrict__ dloss, const Control *__restrict__ control, T *__restrict__ dz, int dz_pitch, i64 rows, i64 points, int channels, float weight) {
  float scale = (dloss ? dloss[0] : 1.0f) * (control ? control->loss_scale : 1.0f);
  float dice = scale * weight / (float)(rows / points * channels), bce = scale * (1.0f - weight) / (float)(rows * channels);
  for (i64 i = flat_start(); i < rows * dz_pitch; i += flat_step()) {
    i64 row = dz_pitch == 1 ? i : i / dz_pitch;
    int channel = (int)(i - row * dz_pitch);
    float d = 0.0f;
    if (channel < channels) {
      const float *map = maps + (row / points * channels + channel) * 8;
      float target = t[row * channels + channel], p = 1.0f / (1.0f + expf(-to_float(z[row * z_pitch + channel])));
      d = bce * (p - target) - dice * p * (1.0f - p) * (2.0f * target * map[6] - map[5]) / (map[6] * map[6]);
    }
    dz[i] = from_float<T>(d);
  }
}
