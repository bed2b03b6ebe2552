package textlog

import (
	"bytes"
	"fmt"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Messages of programs that ran out of memory, usually in a job's error file:
//
//	torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; …)
//	tensorflow.python.framework.errors_impl.ResourceExhaustedError: … OOM when allocating tensor with shape[64,512,512,64] …
//	failed to allocate 2.00G (2147483648 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory
//	slurmstepd: error: Detected 1 oom-kill event(s) in StepId=77001.0. Some of your processes may have been killed by the cgroup out-of-memory handler.
//	srun: error: node01: task 0: Out Of Memory
//
// PyTorch and TensorFlow print the same message for a step that they repeat in
// another way. A run with epochs after the message has continued.

// memoryMarks lists texts by which an out-of-memory message is recognized, each with the
// program that writes it.
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
	// maxMemoryLine limits how much of a line is searched.
	maxMemoryLine = 1 << 12
	// maxMemoryMessages limits the messages kept per run: each rank and each
	// allocation writes its own.
	maxMemoryMessages = 16
	// maxMemoryText limits the characters kept per message.
	maxMemoryText = 240
)

// outOfMemory reads a line that no format recognizes if it says that memory ran
// out.
func (t *textLog) outOfMemory(m []byte) verdict {
	m = m[:min(len(m), maxMemoryLine)]
	if !bytes.Contains(m, []byte("emory")) && !bytes.Contains(m, []byte("MEMORY")) && !bytes.Contains(m, []byte("OOM")) && !bytes.Contains(m, []byte("oom")) {
		return unknown // as for nearly every line
	}
	for _, k := range memoryMarks {
		if !bytes.Contains(m, k.mark) {
			continue
		}
		if t.cur.closed { // the message belongs to the run above, which ended with it
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

// finishMemory marks a run as failed if it ended for lack of memory. A run with
// an epoch after the message has continued, so its messages are removed.
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
