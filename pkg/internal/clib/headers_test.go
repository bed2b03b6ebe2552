//go:build amd64 || arm64

package clib_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cublaslt"
	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/clib/cupti"
	"lockstep/pkg/internal/clib/nccl"
	"lockstep/pkg/internal/clib/nvml"
	"lockstep/pkg/internal/clib/nvrtc"
)

// numbers contains the constants of a library's package, by their names in NVIDIA's header.
type numbers map[string]int64

// header contains what is compared with one of NVIDIA's headers.
type header struct {
	file    string
	since   string // the condition that a version which can be used fulfils
	numbers numbers
	prefix  string // of the names of its functions
}

// named returns the results below most that have a name other than unknown.
func named(most int, name func(int) string, unknown string) numbers {
	list := numbers{}
	for i := range most {
		if n := name(i); strings.TrimRight(n, "0123456789") != unknown {
			list[n] = int64(i)
		}
	}
	return list
}

func headers() []header {
	driver := named(1000, func(i int) string { return cuda.Result(i).Name() }, "CUDA_ERROR_RESULT_")
	maps.Copy(driver, numbers{
		"CU_STREAM_CAPTURE_MODE_GLOBAL": int64(cuda.CaptureGlobal), "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL": int64(cuda.CaptureThreadLocal),
		"CU_STREAM_CAPTURE_MODE_RELAXED": int64(cuda.CaptureRelaxed), "CU_STREAM_CAPTURE_STATUS_NONE": int64(cuda.CaptureNone),
		"CU_STREAM_CAPTURE_STATUS_ACTIVE": int64(cuda.CaptureActive), "CU_STREAM_CAPTURE_STATUS_INVALIDATED": int64(cuda.CaptureInvalidated),
		"CU_STREAM_NON_BLOCKING": int64(cuda.StreamNonBlocking), "CU_EVENT_DEFAULT": int64(cuda.EventDefault),
		"CU_EVENT_BLOCKING_SYNC": int64(cuda.EventBlockingSync), "CU_EVENT_DISABLE_TIMING": int64(cuda.EventDisableTiming),
		"CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK":                int64(cuda.MaxThreadsPerBlock),
		"CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK":          int64(cuda.MaxSharedMemoryPerBlock),
		"CU_DEVICE_ATTRIBUTE_WARP_SIZE":                            int64(cuda.WarpSize),
		"CU_DEVICE_ATTRIBUTE_CLOCK_RATE":                           int64(cuda.ClockRate),
		"CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT":                 int64(cuda.MultiprocessorCount),
		"CU_DEVICE_ATTRIBUTE_INTEGRATED":                           int64(cuda.Integrated),
		"CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE":                    int64(cuda.MemoryClockRate),
		"CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH":              int64(cuda.MemoryBusWidth),
		"CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE":                        int64(cuda.L2CacheSize),
		"CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR":       int64(cuda.MaxThreadsPerMultiprocessor),
		"CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT":                   int64(cuda.AsyncEngineCount),
		"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR":             int64(cuda.ComputeCapabilityMajor),
		"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR":             int64(cuda.ComputeCapabilityMinor),
		"CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": int64(cuda.MaxSharedMemoryPerSM),
		"CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN":    int64(cuda.MaxSharedMemoryOptin),
		"CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK":                  int64(cuda.FuncMaxThreads),
		"CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES":                      int64(cuda.FuncSharedBytes),
		"CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES":                       int64(cuda.FuncLocalBytes),
		"CU_FUNC_ATTRIBUTE_NUM_REGS":                               int64(cuda.FuncRegisters),
		"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES":          int64(cuda.FuncMaxDynamicShared),
		// What LaunchKernel and MemHostAlloc pass, as TestDriverWorkABI and
		// TestDriverMemoryABI see it.
		"(size_t)CU_LAUNCH_PARAM_END": 0, "(size_t)CU_LAUNCH_PARAM_BUFFER_POINTER": 1, "(size_t)CU_LAUNCH_PARAM_BUFFER_SIZE": 2,
		"CU_MEMHOSTALLOC_PORTABLE": 1,
		"sizeof(CUdeviceptr)":      8, "sizeof(CUuuid)": 16, "sizeof(CUdevice)": 4,
	})

	dnn := numbers{
		"CUDNN_DATA_FLOAT": int64(cudnn.Float32), "CUDNN_DATA_DOUBLE": int64(cudnn.Float64), "CUDNN_DATA_HALF": int64(cudnn.Float16),
		"CUDNN_DATA_INT8": int64(cudnn.Int8), "CUDNN_DATA_INT32": int64(cudnn.Int32), "CUDNN_DATA_BFLOAT16": int64(cudnn.BFloat16),
		"CUDNN_DATA_INT64": int64(cudnn.Int64), "CUDNN_DATA_BOOLEAN": int64(cudnn.Boolean),

		"CUDNN_TYPE_HANDLE": int64(cudnn.TypeHandle), "CUDNN_TYPE_DATA_TYPE": int64(cudnn.TypeDataType),
		"CUDNN_TYPE_BOOLEAN": int64(cudnn.TypeBoolean), "CUDNN_TYPE_INT64": int64(cudnn.TypeInt64),
		"CUDNN_TYPE_FLOAT": int64(cudnn.TypeFloat), "CUDNN_TYPE_DOUBLE": int64(cudnn.TypeDouble),
		"CUDNN_TYPE_VOID_PTR": int64(cudnn.TypeVoidPtr), "CUDNN_TYPE_CONVOLUTION_MODE": int64(cudnn.TypeConvolutionMode),
		"CUDNN_TYPE_HEUR_MODE": int64(cudnn.TypeHeurMode), "CUDNN_TYPE_KNOB_TYPE": int64(cudnn.TypeKnobType), "CUDNN_TYPE_NUMERICAL_NOTE": int64(cudnn.TypeNumericalNote),
		"CUDNN_TYPE_POINTWISE_MODE": int64(cudnn.TypePointwiseMode), "CUDNN_TYPE_BACKEND_DESCRIPTOR": int64(cudnn.TypeDescriptor),
		"CUDNN_TYPE_GENSTATS_MODE": int64(cudnn.TypeGenstatsMode), "CUDNN_TYPE_BEHAVIOR_NOTE": int64(cudnn.TypeBehaviorNote),
		"CUDNN_TYPE_CHAR": int64(cudnn.TypeChar),

		"CUDNN_BACKEND_POINTWISE_DESCRIPTOR": int64(cudnn.DescPointwise), "CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR": int64(cudnn.DescConvolution),
		"CUDNN_BACKEND_ENGINE_DESCRIPTOR": int64(cudnn.DescEngine), "CUDNN_BACKEND_ENGINECFG_DESCRIPTOR": int64(cudnn.DescEngineConfig),
		"CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR": int64(cudnn.DescEngineHeur), "CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR": int64(cudnn.DescKnobChoice), "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR": int64(cudnn.DescPlan),
		"CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR":         int64(cudnn.DescConvForward),
		"CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR": int64(cudnn.DescConvFilter),
		"CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR":   int64(cudnn.DescConvData),
		"CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR":                   int64(cudnn.DescPointwiseOp),
		"CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR":                   int64(cudnn.DescGenstats),
		"CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR":                        int64(cudnn.DescGraph),
		"CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR":                          int64(cudnn.DescPack),
		"CUDNN_BACKEND_TENSOR_DESCRIPTOR":                                int64(cudnn.DescTensor),
		"CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR":                            int64(cudnn.DescDeviceProperties),

		"CUDNN_ATTR_DEVICEPROP_HANDLE": int64(cudnn.AttrDeviceHandle), "CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION": int64(cudnn.AttrDeviceJSON),

		"CUDNN_ATTR_POINTWISE_MODE": int64(cudnn.AttrPointwiseMode), "CUDNN_ATTR_POINTWISE_MATH_PREC": int64(cudnn.AttrPointwisePrec),
		"CUDNN_ATTR_CONVOLUTION_COMP_TYPE": int64(cudnn.AttrConvCompType), "CUDNN_ATTR_CONVOLUTION_CONV_MODE": int64(cudnn.AttrConvMode),
		"CUDNN_ATTR_CONVOLUTION_DILATIONS": int64(cudnn.AttrConvDilations), "CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES": int64(cudnn.AttrConvStrides),
		"CUDNN_ATTR_CONVOLUTION_POST_PADDINGS": int64(cudnn.AttrConvPostPaddings), "CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS": int64(cudnn.AttrConvPrePaddings),
		"CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS": int64(cudnn.AttrConvSpatialDims),
		"CUDNN_ATTR_ENGINEHEUR_MODE":          int64(cudnn.AttrHeurMode), "CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH": int64(cudnn.AttrHeurGraph),
		"CUDNN_ATTR_ENGINEHEUR_RESULTS": int64(cudnn.AttrHeurResults), "CUDNN_ATTR_ENGINECFG_ENGINE": int64(cudnn.AttrConfigEngine), "CUDNN_ATTR_ENGINECFG_KNOB_CHOICES": int64(cudnn.AttrConfigKnobs),
		"CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE": int64(cudnn.AttrKnobType), "CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE": int64(cudnn.AttrKnobValue),
		"CUDNN_ATTR_EXECUTION_PLAN_HANDLE": int64(cudnn.AttrPlanHandle), "CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG": int64(cudnn.AttrPlanConfig),
		"CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE":      int64(cudnn.AttrPlanWorkspace),
		"CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION": int64(cudnn.AttrPlanJSON),

		"CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA": int64(cudnn.AttrForwardAlpha), "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA": int64(cudnn.AttrForwardBeta),
		"CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC": int64(cudnn.AttrForwardConv), "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W": int64(cudnn.AttrForwardW),
		"CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X": int64(cudnn.AttrForwardX), "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y": int64(cudnn.AttrForwardY),
		"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA": int64(cudnn.AttrDataAlpha), "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA": int64(cudnn.AttrDataBeta),
		"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC": int64(cudnn.AttrDataConv), "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W": int64(cudnn.AttrDataW),
		"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX": int64(cudnn.AttrDataDX), "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY": int64(cudnn.AttrDataDY),
		"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA": int64(cudnn.AttrFilterAlpha), "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA": int64(cudnn.AttrFilterBeta),
		"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC": int64(cudnn.AttrFilterConv), "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW": int64(cudnn.AttrFilterDW),
		"CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X": int64(cudnn.AttrFilterX), "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY": int64(cudnn.AttrFilterDY),

		"CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR": int64(cudnn.AttrOpPointwise), "CUDNN_ATTR_OPERATION_POINTWISE_XDESC": int64(cudnn.AttrOpX),
		"CUDNN_ATTR_OPERATION_POINTWISE_BDESC": int64(cudnn.AttrOpB), "CUDNN_ATTR_OPERATION_POINTWISE_YDESC": int64(cudnn.AttrOpY),
		"CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1": int64(cudnn.AttrOpAlpha1), "CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2": int64(cudnn.AttrOpAlpha2),
		"CUDNN_ATTR_OPERATION_POINTWISE_DXDESC": int64(cudnn.AttrOpDX), "CUDNN_ATTR_OPERATION_POINTWISE_DYDESC": int64(cudnn.AttrOpDY),
		"CUDNN_ATTR_OPERATION_GENSTATS_MODE": int64(cudnn.AttrGenstatsMode), "CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC": int64(cudnn.AttrGenstatsPrec),
		"CUDNN_ATTR_OPERATION_GENSTATS_XDESC": int64(cudnn.AttrGenstatsX), "CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC": int64(cudnn.AttrGenstatsSum),
		"CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC": int64(cudnn.AttrGenstatsSqSum),
		"CUDNN_ATTR_OPERATIONGRAPH_HANDLE":        int64(cudnn.AttrGraphHandle), "CUDNN_ATTR_OPERATIONGRAPH_OPS": int64(cudnn.AttrGraphOps),
		"CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT": int64(cudnn.AttrTensorAlignment), "CUDNN_ATTR_TENSOR_DATA_TYPE": int64(cudnn.AttrTensorType),
		"CUDNN_ATTR_TENSOR_DIMENSIONS": int64(cudnn.AttrTensorDims), "CUDNN_ATTR_TENSOR_STRIDES": int64(cudnn.AttrTensorStrides),
		"CUDNN_ATTR_TENSOR_UNIQUE_ID": int64(cudnn.AttrTensorID), "CUDNN_ATTR_TENSOR_IS_VIRTUAL": int64(cudnn.AttrTensorVirtual),
		"CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS": int64(cudnn.AttrPackIDs), "CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS": int64(cudnn.AttrPackPointers),
		"CUDNN_ATTR_VARIANT_PACK_WORKSPACE": int64(cudnn.AttrPackWorkspace), "CUDNN_ATTR_ENGINE_GLOBAL_INDEX": int64(cudnn.AttrEngineIndex), "CUDNN_ATTR_ENGINE_OPERATION_GRAPH": int64(cudnn.AttrEngineGraph),
		"CUDNN_ATTR_ENGINE_NUMERICAL_NOTE": int64(cudnn.AttrEngineNumerical), "CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE": int64(cudnn.AttrEngineBehavior),

		"CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR": int64(cudnn.DescBNBackwardWeights), "CUDNN_POINTWISE_SUB": int64(cudnn.PointwiseSub),
		"CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC": int64(cudnn.AttrBNBackwardPrec), "CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC": int64(cudnn.AttrBNBackwardMean),
		"CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC": int64(cudnn.AttrBNBackwardInvStd), "CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC": int64(cudnn.AttrBNBackwardScale),
		"CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC": int64(cudnn.AttrBNBackwardX), "CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC": int64(cudnn.AttrBNBackwardDY),
		"CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC": int64(cudnn.AttrBNBackwardDScale), "CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC": int64(cudnn.AttrBNBackwardDBias),
		"CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC": int64(cudnn.AttrBNBackwardEqDY), "CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC": int64(cudnn.AttrBNBackwardEqX),
		"CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS": int64(cudnn.AttrBNBackwardEqBias),

		"CUDNN_HEUR_MODE_INSTANT": int64(cudnn.HeurInstant), "CUDNN_HEUR_MODE_B": int64(cudnn.HeurB),
		"CUDNN_HEUR_MODE_FALLBACK": int64(cudnn.HeurFallback), "CUDNN_HEUR_MODE_A": int64(cudnn.HeurA),
		"CUDNN_POINTWISE_ADD": int64(cudnn.PointwiseAdd), "CUDNN_POINTWISE_MUL": int64(cudnn.PointwiseMul),
		"CUDNN_POINTWISE_RELU_FWD": int64(cudnn.PointwiseReLU), "CUDNN_POINTWISE_RELU_BWD": int64(cudnn.PointwiseReLUBack),
		"CUDNN_NUMERICAL_NOTE_TENSOR_CORE": int64(cudnn.NoteTensorCore), "CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION": int64(cudnn.NoteReducedPrecision),
		"CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC": int64(cudnn.NoteNondeterministic), "CUDNN_NUMERICAL_NOTE_WINOGRAD": int64(cudnn.NoteWinograd),
		"CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION": int64(cudnn.NoteRuntimeCompilation),
		// Package engine/cuda's own.
		"CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS": 1,
		// What describing an operation passes, as TestCUDNNABI sees it.
		"CUDNN_CROSS_CORRELATION": 1, "CUDNN_GENSTATS_SUM_SQSUM": 0,
	}
	maps.Copy(dnn, named(10000, func(i int) string { return cudnn.Status(i).Name() }, "CUDNN_STATUS"))

	lt := numbers{
		"CUDA_R_32F": int64(cublaslt.Float32), "CUDA_R_16F": int64(cublaslt.Float16), "CUDA_R_16BF": int64(cublaslt.BFloat16),
		"CUBLAS_COMPUTE_32F": int64(cublaslt.ComputeFloat32), "CUBLAS_COMPUTE_32F_FAST_TF32": int64(cublaslt.ComputeTF32),
		// What TestCublasLtABI sees.
		"CUBLASLT_MATMUL_DESC_TRANSA": 3, "CUBLASLT_MATMUL_DESC_TRANSB": 4, "CUBLASLT_MATMUL_DESC_EPILOGUE": 7, "CUBLASLT_MATMUL_DESC_BIAS_POINTER": 8,
		"CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": 1, "CUBLASLT_EPILOGUE_DEFAULT": 1, "CUBLASLT_EPILOGUE_RELU": 2, "CUBLASLT_EPILOGUE_BIAS": 4,
		"CUBLASLT_EPILOGUE_RELU_BIAS": 6, "CUBLAS_OP_N": 0, "CUBLAS_OP_T": 1,
		"sizeof(cublasLtMatmulAlgo_t)": 64, "sizeof(cublasLtMatmulHeuristicResult_t)": 96, "offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize)": 64,
		"offsetof(cublasLtMatmulHeuristicResult_t, state)": 72, "offsetof(cublasLtMatmulHeuristicResult_t, wavesCount)": 76,
	}
	maps.Copy(lt, named(100, func(i int) string { return cublaslt.Status(i).Name() }, "CUBLAS_STATUS"))

	comm := named(100, func(i int) string { return nccl.Result(i).Name() }, "ncclResult")
	maps.Copy(comm, numbers{
		"ncclInt8": int64(nccl.Int8), "ncclUint8": int64(nccl.Uint8), "ncclInt32": int64(nccl.Int32), "ncclUint32": int64(nccl.Uint32),
		"ncclInt64": int64(nccl.Int64), "ncclUint64": int64(nccl.Uint64), "ncclFloat16": int64(nccl.Float16), "ncclFloat32": int64(nccl.Float32),
		"ncclFloat64": int64(nccl.Float64), "ncclBfloat16": int64(nccl.BFloat16),
		"ncclSum": int64(nccl.Sum), "ncclProd": int64(nccl.Prod), "ncclMax": int64(nccl.Max), "ncclMin": int64(nccl.Min), "ncclAvg": int64(nccl.Avg),
		"sizeof(ncclUniqueId)": int64(len(nccl.UniqueID{})),
	})

	ml := named(1000, func(i int) string { return nvml.Result(i).Name() }, "NVML_ERROR")
	maps.Copy(ml, numbers{
		"NVML_CLOCK_GRAPHICS": int64(nvml.GraphicsClock), "NVML_CLOCK_SM": int64(nvml.SMClock), "NVML_CLOCK_MEM": int64(nvml.MemoryClock),
		"sizeof(nvmlMemory_t)": 24, "offsetof(nvmlMemory_t, total)": 0, "offsetof(nvmlMemory_t, free)": 8, "offsetof(nvmlMemory_t, used)": 16,
		"sizeof(nvmlUtilization_t)": 8, "offsetof(nvmlUtilization_t, gpu)": 0, "offsetof(nvmlUtilization_t, memory)": 4,
	})
	record := named(1000, func(i int) string { return cupti.Result(i).Name() }, "CUPTI_RESULT")
	maps.Copy(record, numbers{
		"CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": 10, "CUPTI_ACTIVITY_FLAG_FLUSH_FORCED": 1, // what TestCUPTIABI sees
	})
	// As TestKernelRecordLayout of package cupti has them. Kernel9 is the oldest that a
	// library which is opened fills; later ones append to it.
	for field, at := range (numbers{
		"kind": 0, "registersPerThread": 6, "start": 16, "end": 24, "completed": 32, "deviceId": 40, "contextId": 44, "streamId": 48,
		"gridX": 52, "gridY": 56, "gridZ": 60, "blockX": 64, "blockY": 68, "blockZ": 72, "correlationId": 92, "gridId": 96, "name": 104,
		"graphNodeId": 144,
	}) {
		record["offsetof(CUpti_ActivityKernel9, "+field+")"] = at
	}
	return []header{
		{"cuda.h", "CUDA_VERSION >= 12000", driver, "cu[A-OQ-Z]"},
		{"cudaProfiler.h", "1", nil, "cuP"},
		{"nvrtc.h", "1", named(100, func(i int) string { return nvrtc.Result(i).Name() }, "NVRTC_RESULT"), "nvrtc"},
		{"cudnn.h", "CUDNN_MAJOR == 9", dnn, "cudnn"},
		{"cublasLt.h", "CUBLAS_VER_MAJOR >= 12", lt, "cublasLt"},
		{"nccl.h", "NCCL_VERSION_CODE >= 22300", comm, "nccl"},
		{"nvml.h", "1", ml, "nvml"},
		{"nvtx3/nvToolsExt.h", "1", nil, "nvtx"},
		{"cupti.h", "CUPTI_API_VERSION >= 18", record, "cupti"},
	}
}

// includeFolders returns the folders of headers that belong to this machine's libraries.
func includeFolders() []string {
	var list []string
	add := func(parts ...string) {
		dir := filepath.Join(parts...)
		if info, err := os.Stat(dir); err == nil && info.IsDir() && !slices.Contains(list, dir) {
			list = append(list, dir)
		}
	}
	for _, place := range clib.NewSearch(clib.Environment{}).Places() {
		for _, f := range place.Folders {
			for _, root := range []string{f, filepath.Dir(f)} {
				add(root, "include")
				add(root, "include", "cccl") // what CUDA 13's headers include lies there
				add(root, "extras", "CUPTI", "include")
			}
		}
	}
	add("/usr/local/cuda/include")
	add("/usr/local/cuda/include/cccl")
	return list
}

// TestHeaders compares each of NVIDIA's headers that this machine has with the numbers of the
// packages, and with the parameters of the functions in testdata/stub.c. Other tests check that
// calls pass these parameters.
func TestHeaders(t *testing.T) {
	cc, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++ on this machine to read headers with")
	}
	folders := includeFolders()
	prototypes := stubPrototypes(t)
	for _, h := range headers() {
		t.Run(filepath.Base(h.file), func(t *testing.T) {
			if !slices.ContainsFunc(folders, func(dir string) bool { _, err := os.Stat(filepath.Join(dir, h.file)); return err == nil }) {
				t.Skipf("no %s on this machine", h.file)
			}
			compare(t, cc, folders, h, prototypes)
		})
	}
}

// compare compiles and runs a program that prints the numbers and functions of a header, and
// compares them with h and prototypes.
func compare(t *testing.T, cc string, folders []string, h header, prototypes map[string]string) {
	var program strings.Builder
	for _, file := range []string{"cstddef", "cstdio", "string", h.file} {
		fmt.Fprintf(&program, "#include <%s>\n", file)
	}
	fmt.Fprintf(&program, "#if !(%s)\n#error too old\n#endif\n%s\n", h.since, shapes)
	fmt.Fprintln(&program, "namespace stub { typedef unsigned long long u64; typedef unsigned int u32; typedef void heuristic, kernel;")
	functions := regexp.MustCompile("^" + h.prefix)
	var body strings.Builder
	for _, name := range slices.Sorted(maps.Keys(prototypes)) {
		if functions.MatchString(name) {
			fmt.Fprintln(&program, prototypes[name])
			fmt.Fprintf(&body, "  function<decltype(&::%s), decltype(&stub::%s)>(%q);\n", name, name, name)
		}
	}
	fmt.Fprintln(&program, "}\nint main() {")
	for name := range h.numbers {
		fmt.Fprintf(&body, "  printf(\"%%s\\t%%lld\\n\", %q, (long long)(%s));\n", name, name)
	}
	fmt.Fprint(&program, body.String(), "}\n")
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "header.cc"), filepath.Join(dir, "header")
	check(t, os.WriteFile(source, []byte(program.String()), 0o644))
	args := []string{"-w", "-fno-diagnostics-show-caret", "-o", binary, source}
	for _, dir := range folders {
		args = append(args, "-I"+dir)
	}
	// Functions are named, not called: no library is linked.
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "#error too old") {
			t.Skipf("no %s on this machine that is new enough", h.file)
		}
		if m := regexp.MustCompile(`fatal error: (\S+): No such file`).FindStringSubmatch(string(out)); m != nil {
			t.Skipf("no %s on this machine, which %s includes", m[1], h.file)
		}
		t.Fatalf("%s: %v\n%s", h.file, err, out)
	}
	out, err := exec.Command(binary).Output()
	check(t, err)
	for line := range strings.Lines(string(out)) {
		words := strings.Split(strings.TrimSpace(line), "\t")
		if len(words) == 3 {
			if !sameShape(words[1], words[2]) {
				t.Errorf("%s is %s in %s, %s in testdata/stub.c", words[0], words[1], h.file, words[2])
			}
			continue
		}
		if v, err := strconv.ParseInt(words[1], 10, 64); err != nil || v != h.numbers[words[0]] {
			t.Errorf("%s is %s in %s, we have %d", words[0], words[1], h.file, h.numbers[words[0]])
		}
	}
	t.Logf("%s: %d numbers, %d functions", h.file, len(h.numbers), strings.Count(body.String(), "function<"))
}

// shapes is C++ code that prints how the result and the parameters of a function are passed: v
// for nothing, iN for an integer or enumeration of N bytes, fN for a floating-point number, sN
// for a structure by value, pN for a pointer to an object of N bytes, p? for other pointers.
const shapes = `
#include <type_traits>
template <class T> struct kind {
  static std::string is() {
    if (std::is_enum<T>::value || std::is_integral<T>::value) return "i" + std::to_string(sizeof(T));
    return (std::is_floating_point<T>::value ? "f" : "s") + std::to_string(sizeof(T));
  }
};
template <> struct kind<void> { static std::string is() { return "v"; } };
template <class T> struct kind<T *> {
  template <class U, bool = std::is_arithmetic<U>::value || std::is_enum<U>::value || std::is_pointer<U>::value> struct size {
    static std::string is() { return sizeof(U) > 1 ? std::to_string(sizeof(U)) : "?"; }
  };
  template <class U> struct size<U, false> { static std::string is() { return "?"; } };
  static std::string is() { return "p" + size<T>::is(); }
};
template <class F> struct shape;
template <class R, class... A> struct shape<R (*)(A...)> {
  static std::string is() {
    std::string text = kind<R>::is() + "(";
    std::string each[] = {"", kind<A>::is()...};
    for (size_t i = 1; i <= sizeof...(A); i++) text += (i > 1 ? "," : "") + each[i];
    return text + ")";
  }
};
template <class H, class S> void function(const char *name) {
  printf("%s\t%s\t%s\n", name, shape<H>::is().c_str(), shape<S>::is().c_str());
}
`

// sameShape reports whether two functions have the same shape. p? matches every pointer.
func sameShape(a, b string) bool {
	split := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == '(' || r == ')' })
	}
	return slices.EqualFunc(split(a), split(b), func(x, y string) bool {
		return x == y || x[0] == 'p' && y[0] == 'p' && (x == "p?" || y == "p?")
	})
}

// stubPrototypes returns the prototypes of the functions in testdata/stub.c, by name.
func stubPrototypes(t *testing.T) map[string]string {
	raw, err := os.ReadFile("testdata/stub.c")
	check(t, err)
	list := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^((?:int|size_t|void|const char \*) ?((?:cu|nv|nccl)\w+)\([^)]*\)) \{`).FindAllStringSubmatch(string(raw), -1) {
		list[m[2]] = m[1] + ";"
	}
	return list
}
