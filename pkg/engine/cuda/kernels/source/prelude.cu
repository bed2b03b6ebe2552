// What all kernels share: element types, vectors of 8, sums over a block. The
// text has no include: NVRTC compiles it as it is, and g++ after hostsim's shim,
// which defines LOCKSTEP_HOST.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#ifndef LOCKSTEP_HOST
#define DEVICE static __device__ __forceinline__
// Dynamic shared memory: its size is the launch's, and hostsim puts a guard page
// behind it.
#define SHARED(type, name)                                     \
  extern __shared__ __align__(16) unsigned char shared_memory[]; \
  type *name = reinterpret_cast<type *>(shared_memory)
#endif

// KERNEL(name)( begins a kernel for blocks of at most 256 threads, WIDE(name)( for
// 1024, TYPED(name) adds the element type to a name: source.go expands them, so
// that the text holds every kernel's full head.

// 16-bit floats are their bits; there is no arithmetic on them.
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

// pair converts two floats to 16 bits each, low and high half of a word, to the
// nearest, ties to even; a NaN stays one. unpair is exact.
template <class T> struct half_pair;

#ifndef LOCKSTEP_HOST
template <> struct half_pair<bf16> {
  DEVICE u32 pair(float low, float high) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
  DEVICE float low(u32 word) { return __uint_as_float(word << 16); }
  DEVICE float high(u32 word) { return __uint_as_float(word & 0xffff0000u); }
};
template <> struct half_pair<f16> {
  DEVICE u32 pair(float low, float high) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
  DEVICE float low(u32 word) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"((u16)word));
    return v;
  }
  DEVICE float high(u32 word) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"((u16)(word >> 16)));
    return v;
  }
};
#else
template <> struct half_pair<bf16> {
  DEVICE u32 one(float v) {
    u32 bits = __float_as_uint(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff; // as the instruction does
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  }
  DEVICE u32 pair(float low, float high) { return one(low) | one(high) << 16; }
  DEVICE float low(u32 word) { return __uint_as_float(word << 16); }
  DEVICE float high(u32 word) { return __uint_as_float(word & 0xffff0000u); }
};
template <> struct half_pair<f16> {
  DEVICE u32 one(float v) {
    u32 bits = __float_as_uint(v), sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) return 0x7fff;
    if (bits >= 0x47800000u) return sign | 0x7c00; // 65536 and above
    u32 mantissa, drop;
    if (bits >= 0x38800000u) { // 2^-14, the smallest normal
      mantissa = bits - 0x38000000u;
      drop = 13;
    } else if (bits < 0x33000000u) { // below half of the smallest subnormal
      return sign;
    } else {
      mantissa = (bits & 0x7fffffu) | 0x800000u;
      drop = 126 - (bits >> 23); // to units of 2^-24
    }
    u32 kept = mantissa >> drop, rest = mantissa & ((1u << drop) - 1), middle = 1u << (drop - 1);
    kept += rest > middle || (rest == middle && (kept & 1)); // carries into the exponent, up to infinity
    return sign | kept;
  }
  DEVICE u32 pair(float low, float high) { return one(low) | one(high) << 16; }
  DEVICE float value(u32 bits) {
    u32 sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ffu;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) {
      float v = (float)mantissa * 5.9604644775390625e-8f; // 2^-24
      return __uint_as_float(__float_as_uint(v) | sign);
    }
    return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
  }
  DEVICE float low(u32 word) { return value(word & 0xffffu); }
  DEVICE float high(u32 word) { return value(word >> 16); }
};
#endif

DEVICE float to_float(float v) { return v; }
template <class T> DEVICE float to_float(T v) { return half_pair<T>::low(v.bits); }
template <class T> struct rounded {
  DEVICE T from(float v) {
    T r;
    r.bits = (u16)half_pair<T>::pair(v, 0.0f);
    return r;
  }
};
template <> struct rounded<float> {
  DEVICE float from(float v) { return v; }
};
template <class T> DEVICE T from_float(float v) { return rounded<T>::from(v); }

template <class V> DEVICE V least(V a, V b) { return a < b ? a : b; }
template <class V> DEVICE V most(V a, V b) { return a > b ? a : b; }

// Eight are 8 consecutive values, one vector of channels.
struct Eight {
  float v[8];
};

#define EACH8(j) _Pragma("unroll") for (int j = 0; j < 8; j++)

DEVICE Eight zeros() {
  Eight e;
  EACH8(j) e.v[j] = 0.0f;
  return e;
}

// load8 and store8 move 16 bytes at once, 8 elements of 16 bits or 4 floats; p is
// aligned to 16 bytes.
DEVICE Eight load8(const float *p) {
  float4 a = reinterpret_cast<const float4 *>(p)[0], b = reinterpret_cast<const float4 *>(p)[1];
  Eight e = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  return e;
}
template <class T> DEVICE Eight load8(const T *p) {
  uint4 w = *reinterpret_cast<const uint4 *>(p);
  typedef half_pair<T> h;
  Eight e = {{h::low(w.x), h::high(w.x), h::low(w.y), h::high(w.y), h::low(w.z), h::high(w.z), h::low(w.w), h::high(w.w)}};
  return e;
}
DEVICE void store8(float *p, const Eight &e) {
  float4 a, b;
  a.x = e.v[0], a.y = e.v[1], a.z = e.v[2], a.w = e.v[3];
  b.x = e.v[4], b.y = e.v[5], b.z = e.v[6], b.w = e.v[7];
  reinterpret_cast<float4 *>(p)[0] = a;
  reinterpret_cast<float4 *>(p)[1] = b;
}
template <class T> DEVICE void store8(T *p, const Eight &e) {
  typedef half_pair<T> h;
  uint4 w;
  w.x = h::pair(e.v[0], e.v[1]), w.y = h::pair(e.v[2], e.v[3]);
  w.z = h::pair(e.v[4], e.v[5]), w.w = h::pair(e.v[6], e.v[7]);
  *reinterpret_cast<uint4 *>(p) = w;
}

// aligned16 tells whether all addresses, or-ed together, allow vectors.
DEVICE bool aligned16(u64 addresses) { return (addresses & 15) == 0; }
DEVICE u64 address(const void *p) { return reinterpret_cast<u64>(p); }

// Where a thread stands on a map of rows × channels: see geometry.go. channel is
// the first of its 8; a thread right of the last channel has none.
struct Place {
  int channel;
  bool live;
  i64 row, end, step; // its rows: row, row + step, … below end
};
DEVICE Place place(i64 rows, i64 rows_per_chunk, int channels) {
  Place p;
  p.channel = (int)(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  p.live = p.channel < channels;
  i64 first = (i64)blockIdx.y * rows_per_chunk;
  p.end = p.live ? least(first + rows_per_chunk, rows) : 0;
  p.row = first + threadIdx.y;
  p.step = blockDim.y;
  return p;
}

// TWO(k) repeats what follows for two rows of a thread, row and row + step, of which
// the second may lie beyond the end: HAS(k) tells. Kernels whose output may be their
// input load both before they store, as the compiler may not move a load over a
// store there: 32 bytes in flight a thread instead of 16.
#define TWO(k) _Pragma("unroll") for (int k = 0; k < 2; k++)
#define HAS(k) (k == 0 || row + p.step < p.end)

// flat_start and flat_step are a thread's first index and stride in a kernel over
// a flat range.
DEVICE i64 flat_start() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE i64 flat_step() { return (i64)gridDim.x * blockDim.x; }

// sum_rows adds the values of the threads with the same threadIdx.x up; those of
// threadIdx.y = 0 hold the sums then. Halving in fixed pairs: the order depends on
// the block's size alone. shared holds COUNT values a thread, value by value, so
// that neighbours use neighbouring banks.
template <int COUNT, class V> DEVICE void sum_rows(V *values, V *shared) {
  int threads = blockDim.x * blockDim.y, self = threadIdx.y * blockDim.x + threadIdx.x;
  for (int n = blockDim.y; n > 1;) {
    int half = (n + 1) / 2;
    if ((int)threadIdx.y >= half && (int)threadIdx.y < n) {
#pragma unroll
      for (int i = 0; i < COUNT; i++) shared[i * threads + self] = values[i];
    }
    __syncthreads();
    if ((int)threadIdx.y < n - half) {
      int other = self + half * blockDim.x;
#pragma unroll
      for (int i = 0; i < COUNT; i++) values[i] += shared[i * threads + other];
    }
    __syncthreads();
    n = half;
  }
}

// take makes v, seen at place tap, the best so far where it is greater, or the first
// NaN, or the first at all (at < 0).
DEVICE void take(Eight &best, int *at, const Eight &v, int tap) {
  EACH8(j) {
    bool wins = at[j] < 0 || v.v[j] > best.v[j] || (v.v[j] != v.v[j] && best.v[j] == best.v[j]);
    best.v[j] = wins ? v.v[j] : best.v[j];
    at[j] = wins ? tap : at[j];
  }
}

// ControlBlock as optimizer.go describes it.
struct Control {
  float learning_rate;
  int step;
  i64 seed, epoch;
  int unused[2];
  float loss_scale;
  int found_inf, good_steps, skipped;
  float correct1, correct_root2;
  float clip;
  int unused2;
};

// gradient_factor is what an optimiser multiplies gradients by.
DEVICE float gradient_factor(const Control *control, int unscaled) {
  return unscaled ? control->clip : control->clip / control->loss_scale;
}

DEVICE bool finite(float v) { return (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u; }

// The random numbers of pkg/data: math/rand/v2's PCG (PCG-DXSM with 128 bits of
// state), seeded by a chain of SplitMix64's output function.
DEVICE u64 mix64(u64 x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}
struct Random {
  u64 high, low;
};
DEVICE Random keyed(u64 seed, u64 purpose, u64 epoch, u64 sample) {
  u64 a = mix64(seed) ^ purpose;
  a = mix64(a) ^ epoch;
  a = mix64(a) ^ sample;
  Random r = {mix64(a), mix64(a + 1)};
  return r;
}
DEVICE u64 next64(Random &r) {
  const u64 mul_high = 2549297995355413924ull, mul_low = 4865540595714422341ull;
  const u64 inc_high = 6364136223846793005ull, inc_low = 1442695040888963407ull;
  u64 high = __umul64hi(r.low, mul_low) + r.high * mul_low + r.low * mul_high;
  u64 low = r.low * mul_low;
  u64 sum = low + inc_low;
  high += inc_high + (sum < low);
  r.high = high, r.low = sum;
  const u64 cheap = 0xda942042e4dd58b5ull;
  high ^= high >> 32;
  high *= cheap;
  high ^= high >> 48;
  return high * (sum | 1);
}
// uniform is rand.Float64.
DEVICE double uniform(Random &r) { return (double)(next64(r) << 11 >> 11) / 9007199254740992.0; }
// below is rand.IntN: of a power of two by a mask, of another n by the upper half
// of a product with rejection (Lemire 2019, doi:10.1145/3230636).
DEVICE u32 below(Random &r, u64 n) {
  if ((n & (n - 1)) == 0) return (u32)(next64(r) & (n - 1));
  u64 x = next64(r);
  if (x * n < n) {
    u64 threshold = (0ull - n) % n;
    while (x * n < threshold) x = next64(r);
  }
  return (u32)__umul64hi(x, n);
}

// Change is what augmentation does to one sample: the byte of output position
// (z, y, x) is at start + z·step[0] + y·step[1] + x·step[2]; then the jitter.
struct Change {
  i64 start, step[3];
  float brightness, contrast;
};

enum { AUGMENT_FLIP = 1, AUGMENT_ROTATE = 2, PURPOSE_AUGMENT = 3 };

// Sums and products whose result is rounded each, as a host's without fused
// multiply-adds: the compiler may not join them.
#ifndef LOCKSTEP_HOST
DEVICE float plus(float a, float b) { return __fadd_rn(a, b); }
DEVICE float times(float a, float b) { return __fmul_rn(a, b); }
DEVICE double plus(double a, double b) { return __dadd_rn(a, b); }
DEVICE double times(double a, double b) { return __dmul_rn(a, b); }
#else // compiled without contraction
DEVICE float plus(float a, float b) { return a + b; }
DEVICE float times(float a, float b) { return a * b; }
DEVICE double plus(double a, double b) { return a + b; }
DEVICE double times(double a, double b) { return a * b; }
#endif

// Jitter is how far values may change: doubles, as the host has them.
struct Jitter {
  double brightness, contrast;
};
DEVICE Jitter jitter_of(i64 brightness, i64 contrast) {
  Jitter j = {__longlong_as_double(brightness), __longlong_as_double(contrast)};
  return j;
}

DEVICE void draw_jitter(Random &r, Change &c, Jitter j) {
  c.brightness = (float)times(j.brightness, 2 * uniform(r) - 1);
  c.contrast = (float)plus(1.0, times(j.contrast, 2 * uniform(r) - 1));
}

// change_2d is data's draw: a step of the output's axes is ±width or ±1 bytes.
DEVICE Change change_2d(u64 seed, u64 epoch, int sample, int height, int width, int out_h, int out_w, int flags, Jitter jitter) {
  Random r = keyed(seed, PURPOSE_AUGMENT, epoch, (u64)sample);
  double uy = uniform(r), ux = uniform(r);
  u32 flips = below(r, 4), turns = below(r, 4);
  Change c;
  draw_jitter(r, c, jitter);
  int y = (int)(uy * (double)(height - out_h + 1)), x = (int)(ux * (double)(width - out_w + 1));
  bool flip_row = false, flip_col = false, transpose = false;
  if (flags & AUGMENT_FLIP) flip_row = flips & 1, flip_col = flips & 2;
  if (flags & AUGMENT_ROTATE) {
    transpose = out_h == out_w && (turns & 1);
    if (turns >= 2) flip_row = !flip_row, flip_col = !flip_col;
    if (transpose) flip_col = !flip_col;
  }
  c.start = (i64)y * width + x;
  c.step[0] = 0;
  c.step[1] = transpose ? 1 : width;
  c.step[2] = transpose ? width : 1;
  if (flip_row) {
    c.start += (out_h - 1) * c.step[1];
    c.step[1] = -c.step[1];
  }
  if (flip_col) {
    c.start += (out_w - 1) * c.step[2];
    c.step[2] = -c.step[2];
  }
  return c;
}

// change_3d: one of the 24 rotations of the cube (of the 4 half turns where the
// output is no cube) and mirrors. Axis k of the output runs along axis[k] of the
// sample; a rotation mirrors an even number of axes where their permutation is
// even, an odd number where it is odd.
DEVICE Change change_3d(u64 seed, u64 epoch, int sample, int depth, int height, int width, int out_d, int out_h, int out_w, int flags, Jitter jitter) {
  Random r = keyed(seed, PURPOSE_AUGMENT, epoch, (u64)sample);
  double uz = uniform(r), uy = uniform(r), ux = uniform(r);
  u32 flips = below(r, 8), rotation = below(r, 24);
  Change c;
  draw_jitter(r, c, jitter);
  int z = (int)(uz * (double)(depth - out_d + 1)), y = (int)(uy * (double)(height - out_h + 1)), x = (int)(ux * (double)(width - out_w + 1));
  u32 mirror = 0, permutation = 0; // mirror: bit k for axis k of the output
  if (flags & AUGMENT_ROTATE) {
    if (out_d == out_h && out_h == out_w) permutation = rotation / 4;
    mirror = rotation % 4; // of the first two axes; the third makes the parity right
    u32 odd = permutation & 1; // the list below alternates
    mirror |= ((mirror ^ mirror >> 1 ^ odd) & 1) << 2;
  }
  if (flags & AUGMENT_FLIP) mirror ^= flips;
  i64 along[3];
  along[0] = (i64)height * width, along[1] = width, along[2] = 1;
  // Permutations 0 … 5, even and odd in turn: 012, 021, 120, 102, 201, 210.
  u32 first = permutation / 2;                              // the axis that the output's first runs along
  u32 second = permutation == 0 ? 1 : permutation == 1 ? 2 : permutation == 2 ? 2 : permutation == 3 ? 0 : permutation == 4 ? 0 : 1;
  u32 third = 3 - first - second;
  c.step[0] = first == 0 ? along[0] : first == 1 ? along[1] : along[2];
  c.step[1] = second == 0 ? along[0] : second == 1 ? along[1] : along[2];
  c.step[2] = third == 0 ? along[0] : third == 1 ? along[1] : along[2];
  c.start = z * along[0] + y * along[1] + x;
  int sizes[3];
  sizes[0] = out_d, sizes[1] = out_h, sizes[2] = out_w;
#pragma unroll
  for (int k = 0; k < 3; k++) {
    if (mirror >> k & 1) {
      c.start += (sizes[k] - 1) * c.step[k];
      c.step[k] = -c.step[k];
    }
  }
  return c;
}

DEVICE float standardize(float v, const float *mean, const float *invstd, int channel) {
  return mean ? (v - mean[channel]) * invstd[channel] : v;
}

// store_row writes 8 channels of a row of padded ones: a vector, or element by
// element where rows are not made of vectors.
template <class T> DEVICE void store_row(T *row, int channel, int padded, const Eight &v) {
  if ((padded & 7) == 0) {
    store8(row + channel, v);
    return;
  }
  EACH8(j) {
    if (channel + j < padded) row[channel + j] = from_float<T>(v.v[j]);
  }
}
