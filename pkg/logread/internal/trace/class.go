package trace

import "strings"

const (
	// deviceAnnotation is the category of the copies of a host's annotation
	// that Kineto draws over each stream working for it.
	deviceAnnotation = "gpu_user_annotation"
	stepName         = "ProfilerStep#"
)

// classOf classifies a span by its category and name. Sources: libkineto's
// ActivityType.cpp (categories), PyTorch's torch/profiler and torch/utils/data
// (annotations), horovod/common/common.h (activities of the timeline), NCCL's
// and RCCL's kernel names.
func classOf(cat, name string) spanClass {
	low := strings.ToLower(name)
	switch cat {
	case "python_function", "ac2g", "async_cpu_gpu", "cuda_profiler_range", "overhead":
		return classIgnored // frames of the interpreter, of which there are more than of all else, and what is no time of its own
	case "kernel", "Kernel":
		if isCollective(low) {
			return classCommunicate
		}
		return classCompute
	case "gpu_memset", "Memset":
		return classCompute
	case "gpu_memcpy", "Memcpy":
		return copyClass(low)
	case deviceAnnotation:
		if strings.HasPrefix(name, stepName) {
			return classIgnored // a step, which the host's annotation of that name marks: a second step of the same would count twice
		}
		return classOther // a copy of the host's annotation over a stream
	case "cuda_runtime", "cuda_driver", "xpu_runtime", "hip_runtime", "Runtime":
		return classOther // calls that launch work on the device
	}
	switch {
	case strings.HasPrefix(name, stepName):
		return classStep
	}
	// The parts of a step in traces of this project's engines. If a GPU
	// computes, its own commands are in the trace too.
	switch cat {
	case "forward", "backward", "optimizer":
		return classHostCompute
	case "input":
		return classData
	case "exchange":
		return classCommunicate
	}
	switch {
	case strings.Contains(low, "dataloader"), strings.HasPrefix(low, "iteratorgetnext"), strings.HasPrefix(low, "iterator::"):
		return classData
	case isNCCL(name), strings.HasPrefix(name, "c10d::"), name == "record_param_comms":
		return classHostEnqueue
	case strings.HasPrefix(low, "negotiate_"), low == "queue", strings.HasPrefix(low, "wait_for_"), isCollective(low):
		return classCommunicate
	case strings.HasPrefix(name, "Memcpy "):
		return copyClass(low)
	}
	switch cat {
	case "cpu_op", "Operator", "Op":
		return classHostCompute
	case "user_annotation", "": // PyTorch without Kineto writes no categories
		for _, begin := range []string{"Optimizer.", "DistributedDataParallel.forward", "aten::", "autograd::", "torch::"} {
			if strings.HasPrefix(name, begin) {
				return classHostCompute
			}
		}
	}
	switch low {
	case "forward", "backward", "optimizer", "optimizer_step", "compute":
		return classHostCompute
	case "data", "load", "input":
		return classData
	}
	return classOther
}

// copyClass classifies a copy: to the device it brings a batch, between devices
// it is communication, within a device it belongs to the computation.
func copyClass(low string) spanClass {
	switch {
	case strings.Contains(low, "htod"):
		return classData
	case strings.Contains(low, "ptop"):
		return classCommunicate
	case strings.Contains(low, "dtod"):
		return classCompute
	}
	return classOther
}

// isNCCL reports whether a name is of NCCL or RCCL.
func isNCCL(name string) bool {
	return strings.HasPrefix(name, "nccl") || strings.HasPrefix(name, "rccl") ||
		strings.HasPrefix(name, "NCCL_") || strings.HasPrefix(name, "RCCL_")
}

// isCollectiveItself reports whether a span of communication is the collective
// itself and not only its launch: NCCL's kernels, and the work of the threads
// of PyTorch's process groups for hosts (ProcessGroupGloo, -MPI, -UCC).
func isCollectiveItself(name string) bool {
	return isNCCL(name) || strings.HasPrefix(name, "gloo:") || strings.HasPrefix(name, "mpi:") || strings.HasPrefix(name, "ucc:")
}

// isCollective reports whether a name in lower case is one that libraries give
// to collectives.
func isCollective(low string) bool {
	for _, begin := range []string{"nccl", "rccl", "gloo", "mpi_", "mpi:", "ucc", "xccl", "oneccl"} {
		if strings.HasPrefix(low, begin) {
			return true
		}
	}
	plain := strings.NewReplacer("_", "", "-", "").Replace(low)
	for _, part := range []string{"allreduce", "allgather", "reducescatter", "alltoall", "crossdevicereduce"} {
		if strings.Contains(plain, part) {
			return true
		}
	}
	for _, whole := range []string{"broadcast", "barrier", "horovodbroadcast"} {
		if plain == whole {
			return true
		}
	}
	return false
}
