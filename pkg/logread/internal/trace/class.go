package trace

import "strings"

const (
	// deviceAnnotation is the category of what Kineto draws over each stream that
	// works for an annotation of the host.
	deviceAnnotation = "gpu_user_annotation"
	stepName         = "ProfilerStep#"
)

// classOf classifies a span by the category and the name that its writer gave
// it. Sources: libkineto's ActivityType.cpp (categories), PyTorch's
// torch/profiler and torch/utils/data (annotations), horovod/common/common.h
// (activities of the timeline), NCCL's and RCCL's kernel names.
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
		return classOther // the host's annotation, drawn over a stream
	case "cuda_runtime", "cuda_driver", "xpu_runtime", "hip_runtime", "Runtime":
		return classOther // calls that hand over work
	}
	switch {
	case strings.HasPrefix(name, stepName):
		return classStep
	}
	// The parts of a step, in a trace of this project's engines: where a GPU
	// computes, its own commands carry them.
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

// copyClass: a copy to the device brings a batch, one between devices is an
// exchange, one within a device belongs to the computing.
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

func isNCCL(name string) bool {
	return strings.HasPrefix(name, "nccl") || strings.HasPrefix(name, "rccl") ||
		strings.HasPrefix(name, "NCCL_") || strings.HasPrefix(name, "RCCL_")
}

// isCollectiveItself says whether a span of communication is the collective,
// and not only its being handed over: NCCL's kernels, and what the threads of
// PyTorch's process groups for hosts do (ProcessGroupGloo, -MPI, -UCC).
func isCollectiveItself(name string) bool {
	return isNCCL(name) || strings.HasPrefix(name, "gloo:") || strings.HasPrefix(name, "mpi:") || strings.HasPrefix(name, "ucc:")
}

// isCollective knows the collectives by the names that libraries give them; low
// is in lower case.
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
