/* Calls the library that kernels/build makes as gorgonia.org/cu does. */
#include <cuda.h>
#include <stdio.h>

int main(void) {
	int n = -1;
	printf("before %d\n", cuDeviceGetCount(&n));
	printf("init %d\n", cuInit(0));
	printf("count %d", cuDeviceGetCount(&n));
	printf(" %d\n", n);
	fflush(stdout);
	int r = cuLaunchKernel((CUfunction)1, 2, 3, 4, 5, 6, 7, 8, (CUstream)9, (void **)10, (void **)11);
	printf("launched %d\n", r);
	r = cuTexRefSetMipmapLevelBias((CUtexref)1, 0.5f);
	printf("biased %d\n", r);
	printf("absent %d\n", cuCtxSynchronize());
	return 0;
}
