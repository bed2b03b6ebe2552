// Padding, and max-pooling over windows of depth × height × width on channels-last maps of
// element type T. A block works along lines (n, d, h) of the map it writes: its
// threads are channel vectors by positions along the width, so that only whole
// lines need divisions.

// max_pool: y is the maximum of a window, index (may be null) its place there. The
// first in row order wins among equals, the first NaN over all. Padding is passed over,
// or with pad_zeros zeros of which one may win. Bytes: x read, y and a byte an output
// written.
KERNEL(TYPED(max_pool))(const T *__restrict__ x, int x_pitch, T *__restrict__ y, int y_pitch, u8 *__restrict__ index, int channels, int batch, int in_d, int in_h, int in_w, int out_d, int out_h, int out_w, int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h, int pad_w, int pad_zeros) {
  int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (channel >= channels) return;
  i64 lines = (i64)batch * out_d * out_h;
  for (i64 line = blockIdx.y; line < lines; line += gridDim.y) {
    int oh = (int)(line % out_h);
    i64 rest = line / out_h;
    int od = (int)(rest % out_d);
    i64 n = rest / out_d;
    int d0 = od * stride_d - pad_d, h0 = oh * stride_h - pad_h;
    for (int ow = threadIdx.y; ow < out_w; ow += blockDim.y) {
      int w0 = ow * stride_w - pad_w;
      Eight best = zeros();
      int at[8];
      EACH8(j) at[j] = -1; // none yet
      if (kernel_h == 2 && kernel_w == 2 && (pad_d | pad_h | pad_w) == 0) {
        // The usual window: four loads in flight, no tests.
        for (int a = 0; a < kernel_d; a++) {
          const T *from = x + (((n * in_d + d0 + a) * in_h + h0) * in_w + w0) * x_pitch + channel;
          i64 below = (i64)in_w * x_pitch;
          Eight v0 = load8(from), v1 = load8(from + x_pitch), v2 = load8(from + below), v3 = load8(from + below + x_pitch);
          take(best, at, v0, 4 * a);
          take(best, at, v1, 4 * a + 1);
          take(best, at, v2, 4 * a + 2);
          take(best, at, v3, 4 * a + 3);
        }
      } else {
        for (int a = 0; a < kernel_d; a++) {
          for (int b = 0; b < kernel_h; b++) {
            bool inside = (u32)(d0 + a) < (u32)in_d && (u32)(h0 + b) < (u32)in_h;
            if (!inside && !pad_zeros) continue;
            const T *from = x + ((n * in_d + d0 + a) * in_h + h0 + b) * in_w * x_pitch + channel;
            for (int c = 0; c < kernel_w; c++) {
              int tap = (a * kernel_h + b) * kernel_w + c;
              if (inside && (u32)(w0 + c) < (u32)in_w)
                take(best, at, load8(from + (i64)(w0 + c) * x_pitch), tap);
              else if (pad_zeros)
                take(best, at, zeros(), tap);
            }
          }
        }
      }
      i64 row = line * out_w + ow;
      store8(y + row * y_pitch + channel, best);
      if (index) {
        uint2 packed;
        packed.x = (u32)at[0] | (u32)at[1] << 8 | (u32)at[2] << 16 | (u32)at[3] << 24;
        packed.y = (u32)at[4] | (u32)at[5] << 8 | (u32)at[6] << 16 | (u32)at[7] << 24;
        *reinterpret_cast<uint2 *>(index + row * channels + channel) = packed;
      }
    }
  }
}

// max_pool_backward: dx of an input is the sum of dy over the windows whose maximum
// it is, in row order, + acc. Bytes: dy and index from memory once (neighbours meet
// in the cache), dx written.
KERNEL(TYPED(max_pool_backward))(const T *__restrict__ dy, int dy_pitch, const u8 *__restrict__ index, const T *acc, int acc_pitch, T *dx, int dx_pitch, int channels, int batch, int in_d, int in_h, int in_w, int out_d, int out_h, int out_w, int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h, int pad_w) {
  int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (channel >= channels) return;
  i64 lines = (i64)batch * in_d * in_h;
  for (i64 line = blockIdx.y; line < lines; line += gridDim.y) {
    int h = (int)(line % in_h);
    i64 rest = line / in_h;
    int d = (int)(rest % in_d);
    i64 n = rest / in_d;
    // The windows that hold position p: o·stride ≤ p + pad < o·stride + kernel.
    int d_last = least((d + pad_d) / stride_d, out_d - 1), h_last = least((h + pad_h) / stride_h, out_h - 1);
    int d_first = most(d + pad_d - kernel_d + stride_d, 0) / stride_d, h_first = most(h + pad_h - kernel_h + stride_h, 0) / stride_h;
    for (int w = threadIdx.y; w < in_w; w += blockDim.y) {
      int w_last = least((w + pad_w) / stride_w, out_w - 1), w_first = most(w + pad_w - kernel_w + stride_w, 0) / stride_w;
      Eight sum = zeros();
      for (int od = d_first; od <= d_last; od++) {
        for (int oh = h_first; oh <= h_last; oh++) {
          int tap = ((d + pad_d - od * stride_d) * kernel_h + h + pad_h - oh * stride_h) * kernel_w + w + pad_w;
          i64 start = ((n * out_d + od) * out_h + oh) * out_w;
          for (int ow = w_first; ow <= w_last; ow++) {
            i64 row = start + ow;
            uint2 packed = *reinterpret_cast<const uint2 *>(index + row * channels + channel);
            Eight v = load8(dy + row * dy_pitch + channel);
            u32 want = (u32)(tap - ow * stride_w);
            EACH8(j) {
              u32 at = (j < 4 ? packed.x >> 8 * j : packed.y >> 8 * (j - 4)) & 255;
              sum.v[j] += at == want ? v.v[j] : 0.0f;
            }
          }
        }
      }
      i64 row = line * in_w + w;
      if (acc) {
        Eight a = load8(acc + row * acc_pitch + channel);
        EACH8(j) sum.v[j] += a.v[j];
      }
      store8(dx + row * dx_pitch + channel, sum);
    }
  }
}

// pad: y of an output is x of the input that lies shift before it, zero where that is
// outside, + acc: zeros around a map, or with negative shifts the middle of one, which
// is its gradient. Bytes: x read, y written (and acc read).
KERNEL(TYPED(pad))(const T *__restrict__ x, int x_pitch, const T *acc, int acc_pitch, T *y, int y_pitch, int channels, int batch, int in_d, int in_h, int in_w, int out_d, int out_h, int out_w, int shift_d, int shift_h, int shift_w) {
  int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (channel >= channels) return;
  i64 lines = (i64)batch * out_d * out_h;
  for (i64 line = blockIdx.y; line < lines; line += gridDim.y) {
    int oh = (int)(line % out_h);
    i64 rest = line / out_h;
    int od = (int)(rest % out_d);
    i64 n = rest / out_d;
    int d = od - shift_d, h = oh - shift_h;
    bool inside = (u32)d < (u32)in_d && (u32)h < (u32)in_h;
    const T *from = x + ((n * in_d + d) * in_h + h) * in_w * x_pitch + channel;
    for (int ow = threadIdx.y; ow < out_w; ow += blockDim.y) {
      int w = ow - shift_w;
      Eight v = zeros();
      if (inside && (u32)w < (u32)in_w) v = load8(from + (i64)w * x_pitch);
      i64 row = line * out_w + ow;
      if (acc) {
        Eight a = load8(acc + row * acc_pitch + channel);
        EACH8(j) v.v[j] += a.v[j];
      }
      store8(y + row * y_pitch + channel, v);
    }
  }
}
