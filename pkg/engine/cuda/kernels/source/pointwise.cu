// Elementwise kernels on channels-last maps of element type T. All move the
// minimum of bytes: each input is read once, each output written once.

KERNEL(TYPED(bias_act))(const T *x, int x_pitch, const float *__restrict__ bias, const T *add, int add_pitch, T *y, int y_pitch, i64 rows, i64 rows_per_chunk, int channels, int relu) {
  Place p = place(rows, rows_per_chunk, channels);
  if (!p.live) return;
  Eight b = bias ? load8(bias + p.channel) : zeros();
  for (i64 row = p.row; row < p.end; row += 2 * p.step) {
    Eight v[2], a[2];
    TWO(k) {
      if (!HAS(k)) continue;
      v[k] = load8(x + (row + k * p.step) * x_pitch + p.channel);
      if (add) a[k] = load8(add + (row + k * p.step) * add_pitch + p.channel);
    }
    TWO(k) {
      if (!HAS(k)) continue;
      EACH8(j) {
        float o = v[k].v[j] + b.v[j];
        if (add) o += a[k].v[j];
        v[k].v[j] = relu && o < 0.0f ? 0.0f : o; // a NaN stays one
      }
      store8(y + (row + k * p.step) * y_pitch + p.channel, v[k]);
    }
  }
}

// bias_backward: partial[chunk][channel] = Σ d; with dx also dx = d. dx may be dy.
KERNEL(TYPED(bias_backward))(const T *dy, int dy_pitch, const T *__restrict__ y, int y_pitch, T *dx, int dx_pitch, float *__restrict__ partial, i64 rows, i64 rows_per_chunk, int channels) {
  SHARED(float, shared);
  Place p = place(rows, rows_per_chunk, channels);
  Eight sum = zeros();
  if (p.live) {
    for (i64 row = p.row; row < p.end; row += 2 * p.step) {
      Eight d[2], o[2];
      TWO(k) {
        if (!HAS(k)) continue;
        d[k] = load8(dy + (row + k * p.step) * dy_pitch + p.channel);
        if (y) o[k] = load8(y + (row + k * p.step) * y_pitch + p.channel);
      }
      TWO(k) {
        if (!HAS(k)) continue;
        if (y) EACH8(j) d[k].v[j] = o[k].v[j] > 0.0f ? d[k].v[j] : 0.0f;
        if (dx) store8(dx + (row + k * p.step) * dx_pitch + p.channel, d[k]);
        EACH8(j) sum.v[j] += d[k].v[j];
      }
    }
  }
  sum_rows<8>(sum.v, shared);
  if (p.live && threadIdx.y == 0) store8(partial + (i64)blockIdx.y * channels + p.channel, sum);
}

KERNEL(TYPED(relu))(const T *x, int x_pitch, T *y, int y_pitch, i64 rows, i64 rows_per_chunk, int channels) {
  Place p = place(rows, rows_per_chunk, channels);
#pragma unroll 2
  for (i64 row = p.row; row < p.end; row += p.step) {
    Eight v = load8(x + row * x_pitch + p.channel);
    EACH8(j) v.v[j] = v.v[j] < 0.0f ? 0.0f : v.v[j];
    store8(y + row * y_pitch + p.channel, v);
  }
}

KERNEL(TYPED(relu_backward))(const T *y, int y_pitch, const T *dy, int dy_pitch, const T *acc, int acc_pitch, T *dx, int dx_pitch, i64 rows, i64 rows_per_chunk, int channels) {
  Place p = place(rows, rows_per_chunk, channels);
#pragma unroll 2
  for (i64 row = p.row; row < p.end; row += p.step) {
    Eight o = load8(y + row * y_pitch + p.channel), d = load8(dy + row * dy_pitch + p.channel);
    EACH8(j) d.v[j] = o.v[j] > 0.0f ? d.v[j] : 0.0f;
    if (acc) {
      Eight a = load8(acc + row * acc_pitch + p.channel);
      EACH8(j) d.v[j] += a.v[j];
    }
    store8(dx + row * dx_pitch + p.channel, d);
  }
}

KERNEL(TYPED(add))(const T *a, int a_pitch, const T *b, int b_pitch, T *y, int y_pitch, i64 rows, i64 rows_per_chunk, int channels) {
  Place p = place(rows, rows_per_chunk, channels);
#pragma unroll 2
  for (i64 row = p.row; row < p.end; row += p.step) {
    Eight v = load8(a + row * a_pitch + p.channel), w = load8(b + row * b_pitch + p.channel);
    EACH8(j) v.v[j] += w.v[j];
    store8(y + row * y_pitch + p.channel, v);
  }
}

// copy_channels: rows of channels elements from one pitch to another. In vectors
// where all addresses and sizes allow it, else an element a thread (a
// concatenation at an odd channel; correct, not fast).
KERNEL(TYPED(copy_channels))(const T *__restrict__ src, int src_pitch, T *__restrict__ dst, int dst_pitch, i64 rows, int channels) {
  if (aligned16(address(src) | address(dst)) && ((src_pitch | dst_pitch | channels) & 7) == 0) {
    u32 width = channels / 8;
    bool narrow = rows * width <= 0xffffffffll; // a division in 32 bits is several times as fast
    for (i64 i = flat_start(); i < rows * width; i += flat_step()) {
      i64 row = narrow ? (i64)((u32)i / width) : i / width;
      int channel = (int)(i - row * width) * 8;
      const uint4 *from = reinterpret_cast<const uint4 *>(src + row * src_pitch + channel);
      uint4 *to = reinterpret_cast<uint4 *>(dst + row * dst_pitch + channel);
#pragma unroll
      for (int k = 0; k < (int)sizeof(T) / 2; k++) to[k] = from[k];
    }
    return;
  }
  for (i64 i = flat_start(); i < rows * channels; i += flat_step()) {
    i64 row = i / channels, channel = i - row * channels;
    dst[row * dst_pitch + channel] = src[row * src_pitch + channel];
  }
}

// Casts, 8 elements a thread where both addresses are aligned.
KERNEL(TYPED(cast_from_f32))(const float *__restrict__ src, T *__restrict__ dst, i64 n) {
  i64 vectors = aligned16(address(src) | address(dst)) ? n / 8 : 0;
  for (i64 i = flat_start(); i < vectors; i += flat_step()) store8(dst + i * 8, load8(src + i * 8));
  for (i64 i = vectors * 8 + flat_start(); i < n; i += flat_step()) dst[i] = from_float<T>(src[i]);
}
KERNEL(TYPED(cast_to_f32))(const T *__restrict__ src, float *__restrict__ dst, i64 n) {
  i64 vectors = aligned16(address(src) | address(dst)) ? n / 8 : 0;
  for (i64 i = flat_start(); i < vectors; i += flat_step()) store8(dst + i * 8, load8(src + i * 8));
  for (i64 i = vectors * 8 + flat_start(); i < n; i += flat_step()) dst[i] = to_float(src[i]);
}
