// What synchronised batch norms exchange: vector, 1 + 2·channels doubles, the number of
// rows of a worker and two sums a channel, which are added up over the workers. Sums of
// squares in double keep the digits of float32 as long as a mean is below 10⁴
// deviations. syncnorm.go says what goes where. All of it is small: a vector of 2048
// channels has 32 kB.

// bn_moments: rows, Σ x and Σ x² of the chunks of bn_stats, in a fixed order.
WIDE(bn_moments)(const float *__restrict__ partial, int chunks, i64 rows, i64 rows_per_chunk, int channels, double *__restrict__ vector) {
  SHARED(double, shared);
  int channel = blockIdx.x * blockDim.x + threadIdx.x;
  double sums[2] = {0, 0};
  if (channel < channels) {
#pragma unroll 4
    for (int chunk = threadIdx.y; chunk < chunks; chunk += blockDim.y) {
      const float *from = partial + (i64)chunk * 2 * channels + channel;
      double n = (double)least(rows_per_chunk, rows - chunk * rows_per_chunk), m = (double)from[0];
      sums[0] += n * m;
      sums[1] += (double)from[channels] + n * m * m;
    }
  }
  sum_rows<2>(sums, shared);
  if (channel >= channels || threadIdx.y != 0) return;
  if (channel == 0) vector[0] = (double)rows;
  vector[1 + channel] = sums[0];
  vector[1 + channels + channel] = sums[1];
}

// statistics_pack: rows, a and b.
KERNEL(statistics_pack)(const float *__restrict__ a, const float *__restrict__ b, i64 rows, int channels, double *__restrict__ vector) {
  for (i64 i = flat_start(); i < channels; i += flat_step()) {
    if (i == 0) vector[0] = (double)rows;
    vector[1 + i] = (double)a[i];
    vector[1 + channels + i] = (double)b[i];
  }
}

// statistics_unpack: a and b of all workers in the measure of this one's rows,
// Σ·rows/(rows of all), so that what divides by rows takes the mean over all.
KERNEL(statistics_unpack)(const double *__restrict__ vector, i64 rows, int channels, float *__restrict__ a, float *__restrict__ b) {
  double part = (double)rows / vector[0];
  for (i64 i = flat_start(); i < channels; i += flat_step()) {
    a[i] = (float)(vector[1 + i] * part);
    b[i] = (float)(vector[1 + channels + i] * part);
  }
}

// bn_join: as bn_finalize, of Σ x and Σ x² of all workers.
KERNEL(bn_join)(const double *__restrict__ vector, int channels, float epsilon, float momentum, float *__restrict__ mean, float *__restrict__ invstd, float *__restrict__ running_mean, float *__restrict__ running_var) {
  double rows = vector[0];
  for (i64 i = flat_start(); i < channels; i += flat_step()) {
    double m = vector[1 + i] / rows, variance = vector[1 + channels + i] / rows - m * m;
    if (variance < 0) variance = 0; // a NaN stays one
    mean[i] = (float)m;
    invstd[i] = (float)(1.0 / sqrt(variance + (double)epsilon));
    running_mean[i] = (float)((1.0 - (double)momentum) * (double)running_mean[i] + (double)momentum * m);
    running_var[i] = (float)((1.0 - (double)momentum) * (double)running_var[i] + (double)momentum * variance * (rows / (rows - 1.0)));
  }
}
