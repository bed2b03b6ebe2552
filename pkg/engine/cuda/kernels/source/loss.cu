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
