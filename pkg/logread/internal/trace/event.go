package trace

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/scan"
)

// traceEvent is one event of the trace. Its texts are undecoded slices of the scanner's buffer.
type traceEvent struct {
	ph                byte
	cat, name         []byte
	pid, tid          []byte
	args              []byte
	ts, dur           int64 // nanoseconds
	timed, hasSeconds bool  // ts and dur are set
}

func (e *traceEvent) parse(members *scan.ObjectIterator) {
	*e = traceEvent{}
	for key, value := range members.Members() {
		e.setField(key, scan.UnquoteJSON(value))
	}
}

func (e *traceEvent) setField(key, value []byte) {
	switch string(key) {
	case "ph":
		if len(value) == 1 {
			e.ph = value[0]
		}
	case "cat":
		e.cat = value
	case "name":
		e.name = value
	case "pid":
		e.pid = value
	case "tid":
		e.tid = value
	case "ts":
		e.ts, e.timed = parseMicroseconds(value)
	case "dur":
		e.dur, e.hasSeconds = parseMicroseconds(value)
	case "args":
		e.args = value
	}
}

// maxMicroseconds limits times so that the sum of two in nanoseconds fits into an int64.
const maxMicroseconds = math.MaxInt64 / 4000

// parseMicroseconds parses microseconds into nanoseconds. A float64 would lose the fraction of a
// time since 1970.
func parseMicroseconds(b []byte) (ns int64, ok bool) {
	i, sign := 0, int64(1)
	if len(b) > 0 && b[0] == '-' {
		i, sign = 1, -1
	}
	digits := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		if ns = 10*ns + int64(b[i]-'0'); ns > maxMicroseconds {
			return 0, false
		}
		digits++
	}
	ns *= 1000
	if i < len(b) && b[i] == '.' {
		unit := int64(100)
		for i++; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
			ns += unit * int64(b[i]-'0')
			unit /= 10
			digits++
		}
	}
	if digits > 0 && i == len(b) {
		return sign * ns, true
	}
	v, err := strconv.ParseFloat(string(b), 64) // with an exponent
	if err != nil || math.IsNaN(v) || math.Abs(v) > maxMicroseconds {
		return 0, false
	}
	return int64(math.Round(v * 1000)), true
}

const (
	// deviceAnnotation is the category of Kineto's copies of a host's annotation on each stream
	// working for it.
	deviceAnnotation = "gpu_user_annotation"
	stepName         = "ProfilerStep#"
)

// classifySpan returns the class of a span by category and name. Sources: libkineto's
// ActivityType.cpp (categories), PyTorch's torch/profiler and torch/utils/data (annotations),
// horovod/common/common.h (activities of the timeline), and the names of NCCL's and RCCL's kernels.
func classifySpan(cat, name string) spanClass {
	low := strings.ToLower(name)
	switch cat {
	case "python_function", "ac2g", "async_cpu_gpu", "cuda_profiler_range", "overhead":
		return classIgnored // frames of the interpreter, the most frequent events, and events that take no time themselves
	case "kernel", "Kernel":
		if isCollective(low) {
			return classCommunicate
		}
		return classCompute
	case "gpu_memset", "Memset":
		return classCompute
	case "gpu_memcpy", "Memcpy":
		return classifyMemoryCopy(low)
	case deviceAnnotation:
		if strings.HasPrefix(name, stepName) {
			return classIgnored // the host's annotation of the same step counts; this copy would count the step twice
		}
		return classOther // a copy of the host's annotation over a stream
	case "cuda_runtime", "cuda_driver", "xpu_runtime", "hip_runtime", "Runtime":
		return classOther // calls that launch work on the device
	}
	if strings.HasPrefix(name, stepName) {
		return classStep
	}
	// The phases of a step in traces of this project's engines. If a GPU computes, the trace also
	// contains the commands that it executed.
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
		return classifyMemoryCopy(low)
	}
	switch cat {
	case "cpu_op", "Operator", "Op":
		return classHostCompute
	case "user_annotation", "": // PyTorch without Kineto writes no categories
		if hasAnyPrefix(name, "Optimizer.", "DistributedDataParallel.forward", "aten::", "autograd::", "torch::") {
			return classHostCompute
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

// classifyMemoryCopy returns the class of a memory copy by its lower-case name. A copy from host to device
// loads a batch, a copy between devices is communication, and a copy within a device is computation.
func classifyMemoryCopy(name string) spanClass {
	switch {
	case strings.Contains(name, "htod"):
		return classData
	case strings.Contains(name, "ptop"):
		return classCommunicate
	case strings.Contains(name, "dtod"):
		return classCompute
	}
	return classOther
}

func isNCCL(name string) bool {
	return hasAnyPrefix(name, "nccl", "rccl", "NCCL_", "RCCL_")
}

// isCollectiveExecution reports whether a span of communication is the execution of a collective
// and not its launch: a kernel of NCCL, or the work of a thread of PyTorch's process groups for
// hosts (ProcessGroupGloo, -MPI, -UCC).
func isCollectiveExecution(name string) bool {
	return isNCCL(name) || hasAnyPrefix(name, "gloo:", "mpi:", "ucc:")
}

// isCollective reports whether a lower-case name is a usual name of a collective.
func isCollective(name string) bool {
	plain := strings.NewReplacer("_", "", "-", "").Replace(name)
	return hasAnyPrefix(name, "nccl", "rccl", "gloo", "mpi_", "mpi:", "ucc", "xccl", "oneccl") ||
		slices.ContainsFunc([]string{"allreduce", "allgather", "reducescatter", "alltoall", "crossdevicereduce"}, func(part string) bool { return strings.Contains(plain, part) }) ||
		slices.Contains([]string{"broadcast", "barrier", "horovodbroadcast"}, plain)
}

func hasAnyPrefix(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
