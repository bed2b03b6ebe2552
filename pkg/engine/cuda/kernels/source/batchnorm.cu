// Batch normalisation over the rows of a channels-last map of element type T.
// norm.go holds the arguments' meaning.

// bn_stats: mean and sum of squared differences to it, per chunk of rows and
// channel: partial[chunk][0][channel], partial[chunk][1][channel].
//
// A chunk sums differences to its own first row: E[x²] − E[x]² of raw values would
// lose all digits where the mean is large beside the deviation, a running
// (Welford) update would divide in the loop. Chunks are combined about their true
// means. Bytes: an element is read once, which is the minimum for a mean that must
// be known before y can be written.
KERNEL(TYPED(bn_stats))(const T *__restrict__ x, int x_pitch, float *__restrict__ partial, i64 rows, i64 rows_per_chunk, int channels) {
  SHARED(float, shared);
  Place p = place(rows, rows_per_chunk, channels);
  i64 first = (i64)blockIdx.y * rows_per_chunk;
  float sums[16];
  Eight shift = zeros();
#pragma unroll
  for (int j = 0; j < 16; j++) sums[j] = 0.0f;
  if (p.live) {
    shift = load8(x + first * x_pitch + p.channel);
#pragma unroll 4
    for (i64 row = p.row; row < p.end; row += p.step) {
      Eight v = load8(x + row * x_pitch + p.channel);
      EACH8(j) {
        float d = v.v[j] - shift.v[j];
        sums[j] += d;
        sums[8 + j] = fmaf(d, d, sums[8 + j]);
      }
    }
  }
  sum_rows<16>(sums, shared);
  if (!p.live || threadIdx.y != 0) return;
  float inverse = 1.0f / (float)(p.end - first);
  Eight mean, squares;
  EACH8(j) {
    float m = sums[j] * inverse;
    mean.v[j] = shift.v[j] + m;
    squares.v[j] = most(fmaf(-m, sums[j], sums[8 + j]), 0.0f) + 0.0f * sums[8 + j]; // a NaN must stay one
  }
  float *to = partial + (i64)blockIdx.y * 2 * channels + p.channel;
  store8(to, mean);
  store8(to + channels, squares);
}

// bn_apply: y = act((x − mean)·invstd·gamma + beta + add). Bytes: x read, y
// written, the minimum.
KERNEL(TYPED(bn_apply))(const T *x, int x_pitch, const T *add, int add_pitch, const float *__restrict__ mean, const float *__restrict__ invstd, const float *__restrict__ gamma, const float *__restrict__ beta, T *y, int y_pitch, i64 rows, i64 rows_per_chunk, int channels, int relu) {
  Place p = place(rows, rows_per_chunk, channels);
  if (!p.live) return;
  Eight m = load8(mean + p.channel), s = load8(invstd + p.channel), g = load8(gamma + p.channel), b = load8(beta + p.channel);
  EACH8(j) s.v[j] *= g.v[j];
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
        float o = fmaf(v[k].v[j] - m.v[j], s.v[j], b.v[j]);
        if (add) o += a[k].v[j];
        v[k].v[j] = relu && o < 0.0f ? 0.0f : o; // a NaN stays one
      }
      store8(y + (row + k * p.step) * y_pitch + p.channel, v[k]);
    }
  }
}

// bn_infer: the same by the running statistics.
KERNEL(TYPED(bn_infer))(const T *x, int x_pitch, const T *add, int add_pitch, const float *__restrict__ running_mean, const float *__restrict__ running_var, const float *__restrict__ gamma, const float *__restrict__ beta, T *y, int y_pitch, i64 rows, i64 rows_per_chunk, int channels, int relu, float epsilon) {
  Place p = place(rows, rows_per_chunk, channels);
  if (!p.live) return;
  Eight m = load8(running_mean + p.channel), s = load8(running_var + p.channel), g = load8(gamma + p.channel), b = load8(beta + p.channel);
  EACH8(j) s.v[j] = g.v[j] / sqrtf(s.v[j] + epsilon);
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
        float o = fmaf(v[k].v[j] - m.v[j], s.v[j], b.v[j]);
        if (add) o += a[k].v[j];
        v[k].v[j] = relu && o < 0.0f ? 0.0f : o;
      }
      store8(y + (row + k * p.step) * y_pitch + p.channel, v[k]);
    }
  }
}

// bn_backward_reduce: per chunk of rows and channel, partial[chunk][0] = Σ d and
// partial[chunk][1] = Σ d·x̂, where d is dy under the mask: 1 where the forward
// pass, computed again, was above 0; 2 where y is. Bytes: x and dy read, with mask
// 2 also y: the minimum, as dx needs both sums.
KERNEL(TYPED(bn_backward_reduce))(const T *__restrict__ x, int x_pitch, const T *__restrict__ dy, int dy_pitch, const T *__restrict__ y, int y_pitch, const float *__restrict__ mean, const float *__restrict__ invstd, const float *__restrict__ gamma, const float *__restrict__ beta, float *__restrict__ partial, i64 rows, i64 rows_per_chunk, int channels, int mask) {
  SHARED(float, shared);
  Place p = place(rows, rows_per_chunk, channels);
  float sums[16];
#pragma unroll
  for (int j = 0; j < 16; j++) sums[j] = 0.0f;
  Eight s = zeros();
  if (p.live) {
    Eight m = load8(mean + p.channel), scale, b = load8(beta + p.channel), g = load8(gamma + p.channel);
    s = load8(invstd + p.channel);
    EACH8(j) scale.v[j] = s.v[j] * g.v[j];
#pragma unroll 2
    for (i64 row = p.row; row < p.end; row += p.step) {
      Eight v = load8(x + row * x_pitch + p.channel), d = load8(dy + row * dy_pitch + p.channel);
      if (mask == 2) {
        Eight o = load8(y + row * y_pitch + p.channel);
        EACH8(j) d.v[j] = o.v[j] > 0.0f ? d.v[j] : 0.0f;
      }
      EACH8(j) {
        float c = v.v[j] - m.v[j];
        if (mask == 1) d.v[j] = to_float(from_float<T>(fmaf(c, scale.v[j], b.v[j]))) > 0.0f ? d.v[j] : 0.0f; // as rounded in y
        sums[j] += d.v[j];
        sums[8 + j] = fmaf(d.v[j], c, sums[8 + j]);
      }
    }
  }
  sum_rows<16>(sums, shared);
  if (!p.live || threadIdx.y != 0) return;
  Eight db, dg;
  EACH8(j) {
    db.v[j] = sums[j];
    dg.v[j] = sums[8 + j] * s.v[j];
  }
  float *to = partial + (i64)blockIdx.y * 2 * channels + p.channel;
  store8(to, db);
  store8(to + channels, dg);
}

// bn_backward_apply: dx = gamma·invstd·(d − dbeta/rows − x̂·dgamma/rows) + acc and
// dadd = d. dx may be dy, x or acc: each thread reads an element before it writes it.
KERNEL(TYPED(bn_backward_apply))(const T *x, int x_pitch, const T *dy, int dy_pitch, const T *y, int y_pitch, const float *__restrict__ mean, const float *__restrict__ invstd, const float *__restrict__ gamma, const float *__restrict__ beta, const float *__restrict__ dgamma, const float *__restrict__ dbeta, const T *acc, int acc_pitch, T *dx, int dx_pitch, T *dadd, int dadd_pitch, i64 rows, i64 rows_per_chunk, int channels, int mask) {
  Place p = place(rows, rows_per_chunk, channels);
  if (!p.live) return;
  Eight m = load8(mean + p.channel), b = load8(beta + p.channel), scale, k1 = load8(dbeta + p.channel), k2 = load8(dgamma + p.channel);
  {
    Eight s = load8(invstd + p.channel), g = load8(gamma + p.channel);
    float inverse = 1.0f / (float)rows;
    EACH8(j) {
      scale.v[j] = s.v[j] * g.v[j];
      k1.v[j] *= inverse;
      k2.v[j] *= inverse * s.v[j];
    }
  }
  for (i64 row = p.row; row < p.end; row += p.step) {
    Eight v = load8(x + row * x_pitch + p.channel), d = load8(dy + row * dy_pitch + p.channel);
    if (mask == 2) {
      Eight o = load8(y + row * y_pitch + p.channel);
      EACH8(j) d.v[j] = o.v[j] > 0.0f ? d.v[j] : 0.0f;
    }
    EACH8(j) {
      float c = v.v[j] - m.v[j];
      if (mask == 1) d.v[j] = to_float(from_float<T>(fmaf(c, scale.v[j], b.v[j]))) > 0.0f ? d.v[j] : 0.0f;
      v.v[j] = scale.v[j] * (d.v[j] - k1.v[j] - c * k2.v[j]);
    }
    if (acc) {
      Eight a = load8(acc + row * acc_pitch + p.channel);
      EACH8(j) v.v[j] += a.v[j];
    }
    store8(dx + row * dx_pitch + p.channel, v);
    if (dadd) store8(dadd + row * dadd_pitch + p.channel, d);
  }
}
