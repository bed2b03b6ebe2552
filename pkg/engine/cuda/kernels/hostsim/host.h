// What CUDA C++ has and g++ lacks, so that the kernels' source compiles for the
// host: thread indexes, barriers and shuffles by fibers (simulate.h), vector types
// with the device's alignment. Included before the source.
#define LOCKSTEP_HOST
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DEVICE static inline
#define __global__
#define __launch_bounds__(...)
#define SHARED(type, name) type *name = reinterpret_cast<type *>(sim_shared)

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct SimIndex {
  unsigned x, y, z;
};

static SimIndex threadIdx, blockIdx, blockDim, gridDim;
static unsigned char *sim_shared;

static void sim_sync();
static float sim_shuffle_xor(float v, int distance);

static inline void __syncthreads() { sim_sync(); }
static inline float __shfl_xor_sync(unsigned mask, float v, int distance) {
  (void)mask; // always full here; sim_shuffle_xor refuses absent lanes
  return sim_shuffle_xor(v, distance);
}
static inline unsigned __float_as_uint(float v) {
  unsigned bits;
  memcpy(&bits, &v, 4);
  return bits;
}
static inline float __uint_as_float(unsigned bits) {
  float v;
  memcpy(&v, &bits, 4);
  return v;
}
static inline double __longlong_as_double(long long bits) {
  double v;
  memcpy(&v, &bits, 8);
  return v;
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int atomicOr(int *p, int v) {
  int old = *p;
  *p |= v;
  return old;
}
