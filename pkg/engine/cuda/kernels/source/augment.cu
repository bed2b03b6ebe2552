// Samples of a data set in device memory, cut, turned and mirrored as pkg/data does
// it, bit for bit, into channels-last rows of element type T. A sample's changes are
// drawn by its number in samples; stored says where it lies, null: at that number. layout.go says which random
// numbers are drawn; grid.y counts the samples of the batch. Bytes: the source's
// bytes of the window read once (scattered where axes are swapped, but within a
// window that the cache holds), rows written in vectors.

DEVICE void TYPED(augment_rows)(const u8 *__restrict__ src, const Change &change, T *__restrict__ dst, int dst_pitch, const float *__restrict__ mean, const float *__restrict__ invstd, int channels, int padded, i64 plane, int out_d, int out_h, int out_w, float divisor, bool jitter) {
  i64 rows = (i64)out_d * out_h * out_w;
  for (i64 i = flat_start(); i < rows; i += flat_step()) {
    i64 line = i / out_w;
    int x = (int)(i - line * out_w), z = (int)(line / out_h), y = (int)(line - (i64)z * out_h);
    const u8 *from = src + change.start + z * change.step[0] + y * change.step[1] + x * change.step[2];
    for (int channel = 0; channel < padded; channel += 8) {
      Eight v;
      EACH8(j) {
        int c = channel + j;
        v.v[j] = 0.0f;
        if (c < channels) {
          float value = (float)from[c * plane] / divisor;
          if (jitter) value = least(most(plus(plus(times(value - 0.5f, change.contrast), 0.5f), change.brightness), 0.0f), 1.0f);
          v.v[j] = standardize(value, mean, invstd, c);
        }
      }
      store_row(dst + i * dst_pitch, channel, padded, v);
    }
  }
}

KERNEL(TYPED(augment_2d))(const u8 *__restrict__ src, const int *__restrict__ samples, const int *__restrict__ stored, const Control *__restrict__ control, T *__restrict__ dst, int dst_pitch, const float *__restrict__ mean, const float *__restrict__ invstd, int channels, int padded, int height, int width, int out_height, int out_width, int flags, float divisor, i64 brightness, i64 contrast) {
  int sample = samples[blockIdx.y], from = stored ? stored[blockIdx.y] : sample;
  Change change = change_2d((u64)control->seed, (u64)control->epoch, sample, height, width, out_height, out_width, flags, jitter_of(brightness, contrast));
  i64 plane = (i64)height * width;
  TYPED(augment_rows)(src + (i64)from * channels * plane, change, dst + (i64)blockIdx.y * out_height * out_width * dst_pitch, dst_pitch, mean, invstd, channels, padded, plane, 1, out_height, out_width, divisor, change.brightness != 0.0f || change.contrast != 1.0f);
}

KERNEL(TYPED(augment_3d))(const u8 *__restrict__ src, const int *__restrict__ samples, const int *__restrict__ stored, const Control *__restrict__ control, T *__restrict__ dst, int dst_pitch, const float *__restrict__ mean, const float *__restrict__ invstd, int channels, int padded, int depth, int height, int width, int out_depth, int out_height, int out_width, int flags, float divisor, i64 brightness, i64 contrast) {
  int sample = samples[blockIdx.y], from = stored ? stored[blockIdx.y] : sample;
  Change change = change_3d((u64)control->seed, (u64)control->epoch, sample, depth, height, width, out_depth, out_height, out_width, flags, jitter_of(brightness, contrast));
  i64 plane = (i64)depth * height * width;
  TYPED(augment_rows)(src + (i64)from * channels * plane, change, dst + (i64)blockIdx.y * out_depth * out_height * out_width * dst_pitch, dst_pitch, mean, invstd, channels, padded, plane, out_depth, out_height, out_width, divisor, change.brightness != 0.0f || change.contrast != 1.0f);
}
