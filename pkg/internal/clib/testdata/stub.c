// A library with the C prototypes of NVIDIA's, written from their documentation:
// each function writes its arguments into a text as C sees them, and answers with
// fixed values. The tests load it under the names of the real ones and compare.
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef unsigned int u32;

static char text[1 << 16];
static size_t used;

static void say(const char *format, ...) {
  if (used + 1024 > sizeof text) return; // full: no line is longer
  va_list list;
  va_start(list, format);
  used += vsnprintf(text + used, sizeof text - used, format, list);
  va_end(list);
  text[used++] = '\n';
  text[used] = 0;
}
const char *stub_text(void) { return text; }
void stub_clear(void) { used = 0; text[0] = 0; }

// CUDA driver.
int cuInit(u32 f) { say("cuInit %u", f); return 0; }
int cuDriverGetVersion(int *v) { *v = STUB_DRIVER; return 0; }
int cuDeviceGetCount(int *n) { *n = 3; return 0; }
int cuDeviceGet(int *d, int i) { say("cuDeviceGet %d", i); *d = 70 + i; return i > 2 ? 101 : 0; }
int cuDeviceGetName(char *p, int n, int d) { say("cuDeviceGetName %d %d", n, d); snprintf(p, n, "Stub %d", d); return 0; }
int cuDeviceTotalMem_v2(size_t *n, int d) { say("cuDeviceTotalMem %d", d); *n = 141ull << 30; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { say("cuDeviceGetAttribute %d %d", a, d); *v = -a; return 0; }
int cuDeviceGetPCIBusId(char *p, int n, int d) { say("cuDeviceGetPCIBusId %d %d", n, d); strcpy(p, "0000:0F:00.0"); return 0; }
int cuDeviceGetUuid_v2(char *p, int d) { say("cuDeviceGetUuid %d", d); memset(p, 7, 16); return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { say("cuDevicePrimaryCtxRetain %d", d); *c = (void *)0x100; return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { say("cuDevicePrimaryCtxRelease %d", d); return 0; }
int cuCtxSetCurrent(void *c) { say("cuCtxSetCurrent %p", c); return 0; }
int cuCtxSynchronize(void) { say("cuCtxSynchronize"); return 719; }
int cuProfilerStart(void) { say("cuProfilerStart"); return 0; }
int cuProfilerStop(void) { say("cuProfilerStop"); return 0; }
int cuMemAlloc_v2(u64 *p, size_t n) { say("cuMemAlloc %zu", n); *p = 0x7f0011223344ull; return n >> 40 ? 2 : 0; }
int cuMemFree_v2(u64 p) { say("cuMemFree %llx", p); return 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { *f = 5ull << 32; *t = 6ull << 32; return 0; }
int cuMemHostAlloc(void **p, size_t n, u32 f) { say("cuMemHostAlloc %zu %u", n, f); *p = calloc(1, n); return 0; }
int cuMemFreeHost(void *p) { say("cuMemFreeHost %s", (char *)p); free(p); return 0; }
int cuMemcpyHtoD_v2(u64 d, const void *s, size_t n) { say("cuMemcpyHtoD %llx %.*s %zu", d, (int)n, (const char *)s, n); return 0; }
int cuMemcpyDtoH_v2(void *d, u64 s, size_t n) { say("cuMemcpyDtoH %llx %zu", s, n); memset(d, 'z', n); return 0; }
int cuMemcpyHtoDAsync_v2(u64 d, const void *s, size_t n, void *t) { say("cuMemcpyHtoDAsync %llx %.*s %zu %p", d, (int)n, (const char *)s, n, t); return 0; }
int cuMemcpyDtoHAsync_v2(void *d, u64 s, size_t n, void *t) { say("cuMemcpyDtoHAsync %llx %zu %p", s, n, t); memset(d, 'y', n); return 0; }
int cuMemcpyDtoDAsync_v2(u64 d, u64 s, size_t n, void *t) { say("cuMemcpyDtoDAsync %llx %llx %zu %p", d, s, n, t); return 0; }
int cuMemsetD8Async(u64 d, unsigned char v, size_t n, void *t) { say("cuMemsetD8Async %llx %u %zu %p", d, v, n, t); return 0; }
int cuMemsetD32Async(u64 d, u32 v, size_t n, void *t) { say("cuMemsetD32Async %llx %u %zu %p", d, v, n, t); return 0; }
int cuStreamCreateWithPriority(void **s, u32 f, int p) { say("cuStreamCreateWithPriority %u %d", f, p); *s = (void *)0x200; return 0; }
int cuCtxGetStreamPriorityRange(int *l, int *g) { *l = 0; *g = -5; return 0; }
int cuStreamDestroy_v2(void *s) { say("cuStreamDestroy %p", s); return 0; }
int cuStreamSynchronize(void *s) { say("cuStreamSynchronize %p", s); return 0; }
int cuStreamQuery(void *s) { return s == (void *)1 ? 600 : s == (void *)2 ? 700 : 0; }
int cuStreamWaitEvent(void *s, void *e, u32 f) { say("cuStreamWaitEvent %p %p %u", s, e, f); return 0; }
int cuEventCreate(void **e, u32 f) { say("cuEventCreate %u", f); *e = (void *)0x300; return 0; }
int cuEventDestroy_v2(void *e) { say("cuEventDestroy %p", e); return 0; }
int cuEventRecord(void *e, void *s) { say("cuEventRecord %p %p", e, s); return 0; }
int cuEventSynchronize(void *e) { say("cuEventSynchronize %p", e); return 0; }
int cuEventQuery(void *e) { return e == (void *)1 ? 600 : 0; }
int cuEventElapsedTime(float *ms, void *a, void *b) { say("cuEventElapsedTime %p %p", a, b); *ms = 1.25f; return 0; }
int cuModuleLoadData(void **m, const void *p) { say("cuModuleLoadData %s", (const char *)p); *m = (void *)0x400; return 0; }
int cuModuleUnload(void *m) { say("cuModuleUnload %p", m); return 0; }
int cuModuleGetFunction(void **f, void *m, const char *n) { say("cuModuleGetFunction %p %s", m, n); *f = (void *)0x500; return strcmp(n, "none") ? 0 : 500; }
int cuFuncGetAttribute(int *v, int a, void *f) { say("cuFuncGetAttribute %d %p", a, f); *v = 48; return 0; }
int cuFuncSetAttribute(void *f, int a, int v) { say("cuFuncSetAttribute %p %d %d", f, a, v); return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int b, size_t s) { say("cuOccupancy %p %d %zu", f, b, s); *n = 8; return 0; }
int cuLaunchKernel(void *f, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 sh, void *s, void **params, void **extra) {
  size_t n = *(size_t *)extra[3];
  say("cuLaunchKernel %p %u,%u,%u %u,%u,%u %u %p %p %d %d %p", f, gx, gy, gz, bx, by, bz, sh, s, (void *)params,
      (int)(size_t)extra[0], (int)(size_t)extra[2], extra[4]);
  char hex[256] = "";
  for (size_t i = 0; i < n && i < 100; i++) sprintf(hex + 2 * i, "%02x", ((unsigned char *)extra[1])[i]);
  say("  %zu %s", n, hex);
  return 0;
}
int cuStreamBeginCapture_v2(void *s, int m) { say("cuStreamBeginCapture %p %d", s, m); return 0; }
int cuStreamEndCapture(void *s, void **g) { say("cuStreamEndCapture %p", s); *g = (void *)0x600; return 0; }
int cuStreamIsCapturing(void *s, int *v) { say("cuStreamIsCapturing %p", s); *v = 1; return 0; }
int cuGraphGetNodes(void *g, void **nodes, size_t *n) { say("cuGraphGetNodes %p %p", g, (void *)nodes); *n = 42; return 0; }
int cuGraphDestroy(void *g) { say("cuGraphDestroy %p", g); return 0; }
int cuGraphInstantiateWithFlags(void **e, void *g, u64 f) { say("cuGraphInstantiate %p %llu", g, f); *e = (void *)0x700; return 0; }
int cuGraphUpload(void *e, void *s) { say("cuGraphUpload %p %p", e, s); return 0; }
int cuGraphLaunch(void *e, void *s) { say("cuGraphLaunch %p %p", e, s); return 0; }
int cuGraphExecDestroy(void *e) { say("cuGraphExecDestroy %p", e); return 0; }

// NVRTC.
int nvrtcVersion(int *a, int *b) { *a = STUB_NVRTC; *b = 0; return 0; }
int nvrtcGetNumSupportedArchs(int *n) { *n = 2; return 0; }
int nvrtcGetSupportedArchs(int *v) { v[0] = 80; v[1] = 90; return 0; }
int nvrtcCreateProgram(void **p, const char *src, const char *name, int n, const char *const *h, const char *const *i) {
  say("nvrtcCreateProgram %s %s %d %p %p", src, name, n, (void *)h, (void *)i);
  *p = (void *)0x800;
  return 0;
}
static int compiled;
int nvrtcCompileProgram(void *p, int n, const char *const *o) {
  say("nvrtcCompileProgram %p %d", p, n);
  for (int i = 0; i < n; i++) say("  %s", o[i]);
  compiled = n && !strcmp(o[0], "--bad") ? 5 : 0;
  return compiled;
}
int nvrtcDestroyProgram(void **p) { say("nvrtcDestroyProgram %p", *p); *p = 0; return 0; }
int nvrtcGetPTXSize(void *p, size_t *n) { *n = 5; return 0; }
int nvrtcGetPTX(void *p, char *b) { memcpy(b, "ptx!", 5); return 0; }
int nvrtcGetCUBINSize(void *p, size_t *n) { *n = 3; return 0; }
int nvrtcGetCUBIN(void *p, char *b) { memcpy(b, "bin", 3); return 0; }
int nvrtcGetProgramLogSize(void *p, size_t *n) { *n = 8; return 0; }
int nvrtcGetProgramLog(void *p, char *b) { strcpy(b, "log one"); return 0; }

// cuDNN.
size_t cudnnGetVersion(void) { return STUB_CUDNN; }
void cudnnGetLastErrorString(char *p, size_t n) { snprintf(p, n, "room for %zu", n); }
int cudnnCreate(void **h) { *h = (void *)0x900; return 0; }
int cudnnDestroy(void *h) { say("cudnnDestroy %p", h); return 0; }
int cudnnSetStream(void *h, void *s) { say("cudnnSetStream %p %p", h, s); return 0; }
int cudnnBackendCreateDescriptor(int t, void **d) { static size_t n = 0xa00; say("create %d", t); *d = (void *)(n += 16); return 0; }
int cudnnBackendDestroyDescriptor(void *d) { return 0; }
int cudnnBackendFinalize(void *d) { say("finalize"); return 0; }
int cudnnBackendExecute(void *h, void *p, void *v) { say("cudnnBackendExecute %p", h); return 2003; }
int cudnnBackendSetAttribute(void *d, int name, int type, long long n, const void *p) {
  char line[512];
  int at = sprintf(line, "set %d %d %lld:", name, type, n);
  for (int i = 0; i < n && at < 400; i++) switch (type) {
    case 2: at += sprintf(line + at, " %d", ((const char *)p)[i]); break;
    case 3: at += sprintf(line + at, " %lld", ((const long long *)p)[i]); break;
    case 4: at += sprintf(line + at, " %g", ((const float *)p)[i]); break;
    case 6: at += sprintf(line + at, " %p", ((void *const *)p)[i]); break;
    case 0: case 15: at += sprintf(line + at, " h"); break;
    case 24: at += sprintf(line + at, "%c", ((const char *)p)[i]); break;
    default: at += sprintf(line + at, " %d", ((const int *)p)[i]);
  }
  say("%s", line);
  return 0;
}
int cudnnBackendGetAttribute(void *d, int name, int type, long long want, long long *got, void *p) {
  say("get %d %d %lld", name, type, want);
  switch (name) {
    case 202: *got = 1; return 0;
    case 402: *got = 1; *(long long *)p = 1ll << 33; return 0;
    case 405: *got = 6; if (p) memcpy(p, "{json}", 6); return 0;
    case 1301: *got = 1; *(long long *)p = 17; return 0;
    case 1303: *got = 2; ((int *)p)[0] = 0; ((int *)p)[1] = 4; return 0;
  }
  *got = 0;
  return 0;
}

// NCCL.
int ncclGetVersion(int *v) { *v = STUB_NCCL; return 0; }
int ncclGetUniqueId(char *id) { for (int i = 0; i < 128; i++) id[i] = i; return 0; }
int ncclCommInitRankScalable(void **c, int n, int r, int ids, const char *id, void *config) {
  say("ncclCommInitRankScalable %d %d %d %d %p", n, r, ids, id[127], config);
  *c = (void *)0xb00;
  return 0;
}
int ncclCommDestroy(void *c) { say("ncclCommDestroy %p", c); return 0; }
int ncclCommAbort(void *c) { say("ncclCommAbort %p", c); return 0; }
int ncclCommGetAsyncError(void *c, int *r) { *r = c == (void *)1 ? 7 : 6; return 0; }
const char *ncclGetLastError(void *c) { return "peer 3 left"; }
const char *ncclGetErrorString(int r) { return r == 5 ? "invalid usage" : "other"; }
int ncclGroupStart(void) { say("ncclGroupStart"); return 0; }
int ncclGroupEnd(void) { say("ncclGroupEnd"); return 0; }
int ncclAllReduce(const void *s, void *r, size_t n, int t, int op, void *c, void *st) { say("ncclAllReduce %p %p %zu %d %d %p %p", s, r, n, t, op, c, st); return 0; }
int ncclBroadcast(const void *s, void *r, size_t n, int t, int root, void *c, void *st) { say("ncclBroadcast %p %p %zu %d %d %p %p", s, r, n, t, root, c, st); return 0; }

// cuBLASLt.
size_t cublasLtGetVersion(void) { return 130100; }
int cublasLtCreate(void **h) { *h = (void *)0xc00; return 0; }
int cublasLtDestroy(void *h) { say("cublasLtDestroy %p", h); return 0; }
int cublasLtMatmulDescCreate(void **d, int compute, int scale) { say("cublasLtMatmulDescCreate %d %d", compute, scale); *d = (void *)0xd00; return 0; }
int cublasLtMatmulDescDestroy(void *d) { return 0; }
int cublasLtMatmulDescSetAttribute(void *d, int a, const void *p, size_t n) {
  say("cublasLtMatmulDescSetAttribute %d %llx %zu", a, n == 8 ? *(const u64 *)p : *(const u32 *)p, n);
  return 0;
}
int cublasLtMatrixLayoutCreate(void **l, int t, u64 rows, u64 cols, long long ld) {
  static size_t n = 0xe00;
  say("cublasLtMatrixLayoutCreate %d %llu %llu %lld", t, rows, cols, ld);
  *l = (void *)(n += 16);
  return 0;
}
int cublasLtMatrixLayoutDestroy(void *l) { return 0; }
int cublasLtMatmulPreferenceCreate(void **p) { *p = (void *)0xf00; return 0; }
int cublasLtMatmulPreferenceDestroy(void *p) { return 0; }
int cublasLtMatmulPreferenceSetAttribute(void *p, int a, const void *v, size_t n) { say("cublasLtMatmulPreferenceSetAttribute %d %llu %zu", a, *(const u64 *)v, n); return 0; }
typedef struct { u64 algo[8]; size_t workspace; int state; float waves; int reserved[4]; } heuristic;
int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *o, void *p, int want, heuristic *r, int *got) {
  say("cublasLtMatmulAlgoGetHeuristic %p %d %d", h, c == o, want);
  memset(r, 0, sizeof *r);
  for (int i = 0; i < 8; i++) r->algo[i] = i + 1;
  r->workspace = 1 << 20;
  *got = 1;
  return 0;
}
int cublasLtMatmul(void *h, void *d, const float *alpha, const void *A, void *a, const void *B, void *b, const float *beta,
                   const void *C, void *c, void *D, void *o, const u64 *algo, void *ws, size_t n, void *s) {
  say("cublasLtMatmul %p %g %p %p %g %p %p %d %llu %p %zu %p", h, *alpha, A, B, *beta, C, D, c == o, algo[7], ws, n, s);
  return 0;
}

// NVML.
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *p, u32 n) { snprintf(p, n, "580.82.07"); return 0; }
int nvmlDeviceGetCount_v2(u32 *n) { *n = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u32 i, void **d) { *d = (void *)(0x1000ul + i); return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **d) { say("nvmlDeviceGetHandleByPciBusId %s", id); *d = (void *)0x1002; return 0; }
int nvmlDeviceGetName(void *d, char *p, u32 n) { snprintf(p, n, "Stub %p", d); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, u64 *v) { v[0] = 3; v[1] = 1; v[2] = 2; return 0; }
int nvmlDeviceGetUtilizationRates(void *d, u32 *v) { v[0] = 97; v[1] = 55; return 0; }
int nvmlDeviceGetPowerUsage(void *d, u32 *v) { *v = 512345; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, u64 *v) { *v = 1234567890123ull; return 0; }
int nvmlDeviceGetClockInfo(void *d, int c, u32 *v) { say("nvmlDeviceGetClockInfo %p %d", d, c); *v = 1980; return 3; }

// NVTX.
int nvtxRangePushA(const char *s) { say("push %s", s); return 0; }
int nvtxRangePop(void) { say("pop"); return 0; }

// CUPTI: buffers are asked for and given back from a thread of the library.
static void (*requested)(unsigned char **, size_t *, size_t *);
static void (*completed)(void *, u32, unsigned char *, size_t, size_t);
int cuptiGetVersion(u32 *v) { *v = 130000; return 0; }
int cuptiActivityRegisterCallbacks(void *a, void *b) { requested = a; completed = b; return 0; }
int cuptiActivityEnable(int k) { say("cuptiActivityEnable %d", k); return 0; }
int cuptiActivityDisable(int k) { say("cuptiActivityDisable %d", k); return 0; }
#pragma pack(push, 8)
typedef struct {
  u32 kind;
  unsigned char cacheConfig, sharedConfig;
  unsigned short registers;
  u32 requestedCache, executedCache;
  u64 start, end, completed;
  u32 device, context, stream;
  int gridX, gridY, gridZ, blockX, blockY, blockZ, staticShared, dynamicShared;
  u32 localPerThread, localTotal, correlation;
  long long gridId;
  const char *name;
  void *reserved0;
  u64 queued, submitted;
  unsigned char launchType, carveoutRequested, carveout, padding;
  u32 sharedExecuted;
  u64 graphNode;
} kernel;
#pragma pack(pop)
static void *worker(void *unused) {
  for (int i = 0; i < 2; i++) {
    unsigned char *at = 0;
    size_t size = 0, records = 99;
    requested(&at, &size, &records);
    kernel k = {.kind = 10, .registers = 40, .start = 100 + i, .end = 200 + i, .stream = 7, .gridX = 1, .gridY = 2, .gridZ = 3,
                .blockX = 256, .blockY = 1, .blockZ = 1, .correlation = 9, .name = "bn_forward", .graphNode = 1ull << 40};
    memcpy(at, &k, sizeof k);
    k.kind = 3; // a copy, which is not asked for
    memcpy(at + sizeof k, &k, sizeof k);
    completed(0, 0, at, size, 2 * sizeof k);
  }
  return 0;
}
int cuptiActivityFlushAll(u32 f) {
  pthread_t t;
  say("cuptiActivityFlushAll %u", f);
  pthread_create(&t, 0, worker, 0);
  pthread_join(t, 0);
  return 0;
}
int cuptiActivityGetNextRecord(unsigned char *at, size_t used, kernel **r) {
  *r = *r ? *r + 1 : (kernel *)at;
  return (unsigned char *)*r < at + used ? 0 : 12;
}
