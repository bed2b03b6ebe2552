package textlog

import (
	"bytes"
	"fmt"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// What programs write when memory runs out, as a rule into a job's error file:
//
//	torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; …)
//	tensorflow.python.framework.errors_impl.ResourceExhaustedError: … OOM when allocating tensor with shape[64,512,512,64] …
//	failed to allocate 2.00G (2147483648 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory
//	slurmstepd: error: Detected 1 oom-kill event(s) in StepId=77001.0. Some of your processes may have been killed by the cgroup out-of-memory handler.
//	srun: error: node01: task 0: Out Of Memory
//
// Torch's and TensorFlow's messages of a step that they try again in another
// way are the same; a run with epochs after the message went on.

// memoryMarks are what a message holds, with who writes it.
var memoryMarks = []struct {
	mark []byte
	who  string
}{
	{[]byte("CUDA out of memory"), "PyTorch"},
	{[]byte("HIP out of memory"), "PyTorch"},
	{[]byte("OOM when allocating tensor"), "TensorFlow"},
	{[]byte("CUDA_ERROR_OUT_OF_MEMORY"), "CUDA"},
	{[]byte("oom-kill event"), "Slurm"},
	{[]byte("oom_kill event"), "Slurm"},
	{[]byte(": Out Of Memory"), "Slurm"},
}

const (
	// maxMemoryLine bounds how much of a line is searched for a mark.
	maxMemoryLine = 1 << 12
	// maxMemoryMessages bounds the messages that are kept of a run: each rank
	// and each allocation writes its own.
	maxMemoryMessages = 16
	// maxMemoryText bounds what is kept of a message.
	maxMemoryText = 240
)

// outOfMemory takes a line of no other form that says that memory ran out.
func (t *textLog) outOfMemory(m []byte) verdict {
	m = m[:min(len(m), maxMemoryLine)]
	if !bytes.Contains(m, []byte("emory")) && !bytes.Contains(m, []byte("MEMORY")) && !bytes.Contains(m, []byte("OOM")) && !bytes.Contains(m, []byte("oom")) {
		return unknown // as nearly every line
	}
	for _, k := range memoryMarks {
		if !bytes.Contains(m, k.mark) {
			continue
		}
		if t.cur.closed { // the message is of the run above, which ended with it
			t.cur.closed = false
			defer func() { t.cur.closed = true }()
		}
		run := t.form(formMemory)
		if len(run.run.OutOfMemory) < maxMemoryMessages {
			text := strings.ToValidUTF8(strings.TrimSpace(string(m)), "")
			if cut := []rune(text); len(cut) > maxMemoryText {
				text = string(cut[:maxMemoryText]) + "…"
			}
			run.run.OutOfMemory = append(run.run.OutOfMemory, runs.Problem{File: t.in.Path, Line: t.l.Number, Reason: k.who + ": " + text})
		}
		t.in.Report.Records++
		return used
	}
	return unknown
}

// finishMemory makes a run that ended without memory a failed one. A run that
// has an epoch after the message went on, and its messages are no evidence.
func (r *textRun) finishMemory(report *record.Report) {
	n := len(r.run.OutOfMemory)
	if n == 0 {
		return
	}
	last := r.run.OutOfMemory[n-1]
	for _, e := range r.run.Epochs {
		if e.Line > last.Line {
			report.Assume("line %d says that memory ran out, and the run went on: it does not count as failed", last.Line)
			r.run.OutOfMemory = nil
			return
		}
	}
	first := r.run.OutOfMemory[0]
	text := fmt.Sprintf("out of memory: %s (line %d)", first.Reason, first.Line)
	if r.run.Info.Error != "" {
		text = r.run.Info.Error + "; " + text
	}
	r.run.Info.Status, r.run.Info.Error = runs.StatusFailed, text
}
