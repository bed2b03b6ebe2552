// Between planar float32 or bytes and channels-last rows of element type T.

// nchw_to_nhwc: a tile of 32 channels × 32 positions through shared memory, so that
// both sides are read and written along their rows. Channels from channels to
// padded become zero. Bytes: the minimum, in elements instead of vectors on the
// side of T.
KERNEL(TYPED(nchw_to_nhwc))(const float *__restrict__ src, T *__restrict__ dst, int dst_pitch, int channels, int padded, i64 spatial) {
  SHARED(float, tile);
  i64 position0 = (i64)blockIdx.x * 32;
  int channel0 = blockIdx.y * 32;
  src += (i64)blockIdx.z * channels * spatial;
  dst += (i64)blockIdx.z * spatial * dst_pitch;
  for (int k = threadIdx.y; k < 32; k += blockDim.y) {
    i64 position = position0 + threadIdx.x;
    int channel = channel0 + k;
    tile[k * 33 + threadIdx.x] = channel < channels && position < spatial ? src[channel * spatial + position] : 0.0f;
  }
  __syncthreads();
  for (int k = threadIdx.y; k < 32; k += blockDim.y) {
    i64 position = position0 + k;
    int channel = channel0 + threadIdx.x;
    if (channel < padded && position < spatial) dst[position * dst_pitch + channel] = from_float<T>(tile[threadIdx.x * 33 + k]);
  }
}

// nchw_to_rows is nchw_to_nhwc of up to 8 channels: a row, which is one vector, a thread.
KERNEL(TYPED(nchw_to_rows))(const float *__restrict__ src, T *__restrict__ dst, int dst_pitch, int channels, i64 spatial) {
  src += (i64)blockIdx.y * channels * spatial;
  dst += (i64)blockIdx.y * spatial * dst_pitch;
  for (i64 i = flat_start(); i < spatial; i += flat_step()) {
    Eight v;
    EACH8(j) v.v[j] = j < channels ? src[j * spatial + i] : 0.0f;
    store8(dst + i * dst_pitch, v);
  }
}

KERNEL(TYPED(nhwc_to_nchw))(const T *__restrict__ src, int src_pitch, float *__restrict__ dst, int channels, i64 spatial) {
  SHARED(float, tile);
  i64 position0 = (i64)blockIdx.x * 32;
  int channel0 = blockIdx.y * 32;
  src += (i64)blockIdx.z * spatial * src_pitch;
  dst += (i64)blockIdx.z * channels * spatial;
  for (int k = threadIdx.y; k < 32; k += blockDim.y) {
    i64 position = position0 + k;
    int channel = channel0 + threadIdx.x;
    if (channel < channels && position < spatial) tile[k * 33 + threadIdx.x] = to_float(src[position * src_pitch + channel]);
  }
  __syncthreads();
  for (int k = threadIdx.y; k < 32; k += blockDim.y) {
    i64 position = position0 + threadIdx.x;
    int channel = channel0 + k;
    if (channel < channels && position < spatial) dst[channel * spatial + position] = tile[threadIdx.x * 33 + k];
  }
}

// normalize_u8: planar bytes [batch][channels][spatial] to rows of padded channels,
// a row a thread. Bytes: those of the source read once; rows written in vectors.
KERNEL(TYPED(normalize_u8))(const u8 *__restrict__ src, T *__restrict__ dst, int dst_pitch, const float *__restrict__ mean, const float *__restrict__ invstd, int channels, int padded, i64 spatial, float divisor) {
  src += (i64)blockIdx.y * channels * spatial;
  dst += (i64)blockIdx.y * spatial * dst_pitch;
  for (i64 i = flat_start(); i < spatial; i += flat_step()) {
    T *row = dst + i * dst_pitch;
    for (int channel = 0; channel < padded; channel += 8) {
      Eight v;
      EACH8(j) {
        int c = channel + j;
        v.v[j] = 0.0f;
        if (c < channels) v.v[j] = standardize((float)src[c * spatial + i] / divisor, mean, invstd, c);
      }
      store_row(row, channel, padded, v);
    }
  }
}
