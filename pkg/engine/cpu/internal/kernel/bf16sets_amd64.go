package kernel

import "github.com/klauspost/cpuid/v2"

// assemblyBF16KernelSets returns the supported Sets with assembly for BF16, the best first.
func assemblyBF16KernelSets() []*Set {
	if !cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.AVX512F, cpuid.AVX512VL, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512BF16) {
		return nil
	}
	list := []*Set{newAVX512BF16KernelSet()}
	if cpuid.CPU.Supports(cpuid.AMXTILE, cpuid.AMXBF16) && requestAMXPermission() {
		list = []*Set{newAMXKernelSet(), list[0]}
	}
	return list
}

// newAVX512BF16KernelSet returns the Set for AVX-512 with AVX512_BF16. An Intel Xeon core computes
// half as many bfloat16 products per second as fp32 products, an AMD EPYC core (Zen 4) twice as
// many; see environment/benchmarks.md.
func newAVX512BF16KernelSet() *Set {
	k := newAVX512KernelSet()
	k.Name = "avx512_bf16"
	k.BF16 = &BF16Kernels{Slow: cpuid.CPU.VendorID == cpuid.Intel, Multiply: bf16MultiplyAVX512, PackRows: bf16PackRowsAVX512, PackPairs: bf16PackPairsAVX512, PackTransposed: bf16PackTransposedAVX512, PackColumns: bf16PackColumnsAVX512, Unpack: bf16UnpackAVX512, UnpackUncached: bf16UnpackUncachedAVX512}
	return k
}

func newAMXKernelSet() *Set {
	k := newAVX512BF16KernelSet()
	k.Name, k.BF16.Direct, k.BF16.Slow, k.BF16.Multiply = "amx", true, false, bf16MultiplyAMX
	k.BF16.UnpackUncached = k.BF16.Unpack // on Intel's processors, writing past the cache takes longer
	return k
}
