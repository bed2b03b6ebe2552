package system

import (
	"bytes"
	"fmt"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// Programs that run out of memory write these messages, usually to a job's
// error file:
//
//	torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; …)
//	tensorflow.python.framework.errors_impl.ResourceExhaustedError: … OOM when allocating tensor with shape[64,512,512,64] …
//	failed to allocate 2.00G (2147483648 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory
//	slurmstepd: error: Detected 1 oom-kill event(s) in StepId=77001.0. Some of your processes may have been killed by the cgroup out-of-memory handler.
//	srun: error: node01: task 0: Out Of Memory
//
// PyTorch and TensorFlow print the same message for an operation that they retry with another
// algorithm. If epochs follow the message, the run has continued. If PyTorch prints it before the
// first epoch, the program may have gone on with a smaller batch.

// outOfMemoryTexts lists the texts that identify an out-of-memory message, and their programs.
var outOfMemoryTexts = []struct {
	mark []byte
	who  string
}{
	{[]byte("CUDA out of memory. "), pyTorch},
	{[]byte("HIP out of memory. "), pyTorch},
	{[]byte("CUDA error: out of memory"), pyTorch},
	{[]byte("OOM when allocating tensor"), "TensorFlow"},
	{[]byte("CUDA_ERROR_OUT_OF_MEMORY"), "CUDA"},
	{[]byte("oom-kill event"), "Slurm"},
	{[]byte("oom_kill event"), "Slurm"},
	{[]byte(": Out Of Memory"), "Slurm"},
}

const (
	pyTorch = "PyTorch"
	// maxMemoryLine is the number of bytes of a line that are searched.
	maxMemoryLine = 1 << 12
	// maxMemoryMessages limits the messages per run: each rank and each failed allocation writes one.
	maxMemoryMessages = 16
	maxMemoryText     = 240
)

// OutOfMemory returns the format of out-of-memory messages.
func OutOfMemory() logline.Format {
	return logline.Format{Name: "out of memory", Anywhere: readOutOfMemory}
}

// readOutOfMemory uses a line that no format recognizes if it reports that memory ran out.
func readOutOfMemory(log *logline.Log, m []byte) logline.Result {
	m = m[:min(len(m), maxMemoryLine)]
	// Each text contains one of these parts, which begin with rare letters, or an O: nearly every
	// line is searched.
	if !bytes.Contains(m, []byte("mory")) && bytes.IndexByte(m, 'O') < 0 && !bytes.Contains(m, []byte("kill")) {
		return logline.Unknown
	}
	for _, k := range outOfMemoryTexts {
		if !bytes.Contains(m, k.mark) {
			continue
		}
		if log.Current.Closed { // the message belongs to the run above, which ended with it
			log.Current.Closed = false
			defer func() { log.Current.Closed = true }()
		}
		run := log.CountLine(logline.OutOfMemory)
		if len(run.Run.OutOfMemory) < maxMemoryMessages {
			text := strings.ToValidUTF8(strings.TrimSpace(string(m)), "")
			if cut := []rune(text); len(cut) > maxMemoryText {
				text = string(cut[:maxMemoryText]) + "…"
			}
			run.Run.OutOfMemory = append(run.Run.OutOfMemory, runs.Problem{File: log.In.Path, Line: log.Lines.Number, Reason: k.who + ": " + text})
		}
		log.In.Report.Records++
		return logline.Used
	}
	return logline.Unknown
}

// FinishOutOfMemory marks the run as failed if it ran out of memory. If an epoch follows the last
// message, the run has continued. It then keeps the messages only if the batch may have changed after them.
func FinishOutOfMemory(r *logline.Run, report *record.Report) {
	n := len(r.Run.OutOfMemory)
	if n == 0 {
		return
	}
	last := r.Run.OutOfMemory[n-1]
	for _, e := range r.Run.Epochs {
		if e.Line > last.Line {
			report.AddAssumption("line %d reports that memory ran out, but the run continued: it does not count as failed", last.Line)
			if r.Run.Epochs[0].Line < last.Line || !strings.HasPrefix(last.Reason, pyTorch) {
				r.Run.OutOfMemory = nil
			}
			return
		}
	}
	first := r.Run.OutOfMemory[0]
	text := fmt.Sprintf("out of memory: %s (line %d)", first.Reason, first.Line)
	if r.Run.Info.Error != "" {
		text = r.Run.Info.Error + "; " + text
	}
	r.Run.Info.Status, r.Run.Info.Error = runs.StatusFailed, text
}
