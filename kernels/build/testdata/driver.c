/* A CUDA driver for tests: two devices that can do nothing, and functions that
   say which arguments arrived. One kernel it knows, saxpy, which it runs on the
   CPU. INIT is what cuInit answers. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef INIT
#define INIT 0
#endif

int cuInit(unsigned int flags) { return flags == 0 ? INIT : 1; }

int cuDriverGetVersion(int *version) {
	*version = 12080;
	return 0;
}

int cuDeviceGetCount(int *count) {
	*count = 2;
	return 0;
}

int cuDeviceGet(int *device, int ordinal) {
	*device = ordinal;
	return 0;
}

int cuDeviceGetName(char *name, int size, int device) {
	snprintf(name, size, "Pretence %c", 'A' + device);
	return 0;
}

/* The symbol of old programs, which takes 32 bits. */
int cuDeviceTotalMem(unsigned int *bytes, int device) { return 1; }

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
	*bytes = (size_t)(device + 1) << 33;
	return 0;
}

enum { kernel = 0x5a };

int cuDevicePrimaryCtxRetain(void **context, int device) {
	*context = (void *)(size_t)(device + 0xc0);
	return 0;
}

/* What needs a context answers 201, as the driver does, on a thread without one. */
static _Thread_local void *current;

int cuCtxSetCurrent(void *context) {
	current = context;
	return 0;
}

#define NEED_CONTEXT if (current == NULL) return 201

int cuDeviceGetAttribute(int *value, int attribute, int device) {
	switch (attribute) {
	case 16: *value = 7; break; /* multiprocessors */
	case 75: *value = 8; break; /* compute capability, major */
	case 76: *value = 0; break; /* and minor */
	default: return 1;
	}
	return 0;
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
	NEED_CONTEXT;
	*available = (size_t)3 << 30;
	*total = (size_t)8 << 30;
	return 0;
}

int cuMemAlloc_v2(unsigned long long *memory, size_t bytes) {
	NEED_CONTEXT;
	void *p = malloc(bytes);
	memset(p, 0xff, bytes); /* NaN, until it is written */
	*memory = (unsigned long long)p;
	return 0;
}

int cuMemFree_v2(unsigned long long memory) {
	NEED_CONTEXT;
	free((void *)memory);
	return 0;
}

int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes) {
	NEED_CONTEXT;
	memcpy((void *)to, from, bytes);
	return 0;
}

int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes) {
	NEED_CONTEXT;
	memcpy(to, (const void *)from, bytes);
	return 0;
}

int cuModuleLoadData(void **module, const char *image) {
	NEED_CONTEXT;
	*module = (void *)1;
	return strstr(image, ".entry saxpy(") != NULL ? 0 : 218; /* invalid PTX */
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
	*function = (void *)kernel;
	return strcmp(name, "saxpy") == 0 ? 0 : 500; /* not found */
}

int cuEventCreate(void **event, unsigned flags) {
	NEED_CONTEXT;
	*event = malloc(1);
	return 0;
}

int cuEventDestroy_v2(void *event) {
	free(event);
	return 0;
}

int cuEventRecord(void *event, void *stream) { return event != NULL && stream == NULL ? 0 : 1; }

int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
	*milliseconds = 0.5f;
	return start != end ? 0 : 1;
}

static int saxpy(long long threads, void **params) {
	long long n = *(long long *)params[0];
	float a = *(float *)params[1];
	const float *x = *(const float **)params[2];
	float *y = *(float **)params[3];
	for (long long i = 0; i < threads && i < n; i++) y[i] = a * x[i] + y[i];
	return 0;
}

/* Eleven arguments: five of them lie on the stack. */
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **params, void **extra) {
	if (f == (void *)kernel) {
		NEED_CONTEXT;
		return saxpy((long long)gx * bx, params);
	}
	printf("launch %p %u %u %u %u %u %u %u %p %p %p\n", f, gx, gy, gz, bx, by, bz, shared, stream, (void *)params, (void *)extra);
	return 700;
}

/* An argument in a floating-point register. */
int cuTexRefSetMipmapLevelBias(void *texture, float bias) {
	printf("bias %p %g\n", texture, bias);
	return 0;
}
