package logread

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/runs"
)

// Messages of PyTorch 1.13 and 2.x, TensorFlow 2.4 on
// a GPU, XLA's allocator, Slurm 20.11 and 23.02.
const (
	torchOld  = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; 12.40 GiB already allocated; 1.10 GiB free; 13.50 GiB reserved in total by PyTorch)\n"
	torchNew  = "[rank1]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 11.19 MiB is free.\n"
	tfMessage = "tensorflow.python.framework.errors_impl.ResourceExhaustedError:  OOM when allocating tensor with shape[64,512,512,64] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]\n"
	cudaMark  = "2022-03-07 12:00:00.123456: E tensorflow/stream_executor/cuda/cuda_driver.cc:802] failed to allocate 2.00G (2147483648 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
	slurmOld  = "slurmstepd: error: Detected 1 oom-kill event(s) in step 77001.0 cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.\n"
	slurmNew  = "slurmstepd: error: Detected 2 oom_kill events in StepId=77001.0. Some of the step tasks have been OOM Killed.\n"
	srunTask  = "srun: error: node01: task 0: Out Of Memory\n"
)

// TestOutOfMemory checks that each message ends a run and that its line is
// reported.
func TestOutOfMemory(t *testing.T) {
	for who, text := range map[string]string{
		"PyTorch: RuntimeError": torchOld, "PyTorch: torch.cuda.OutOfMemoryError": torchNew, "TensorFlow: tensorflow": tfMessage,
		"CUDA: ": cudaMark, "Slurm: slurmstepd: error: Detected 1 oom-kill": slurmOld, "Slurm: slurmstepd: error: Detected 2 oom_kill": slurmNew, "Slurm: srun": srunTask,
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"unet_2gpus.err": "Traceback (most recent call last):\n" + text})
		logs, _ := explained(t, dir)
		if len(logs.Runs) != 1 {
			t.Errorf("%s: %d runs", who, len(logs.Runs))
			continue
		}
		r := logs.Runs[0]
		if r.Info.Status != runs.StatusFailed || !strings.HasPrefix(r.Info.Error, "out of memory: "+who) || !strings.HasSuffix(r.Info.Error, "(line 2)") || r.Info.Workers != 2 || r.Kind != "out of memory" {
			t.Errorf("%s: %s, %q, %d workers, %s", who, r.Info.Status, r.Info.Error, r.Info.Workers, r.Kind)
		}
		if len(r.OutOfMemory) != 1 || r.OutOfMemory[0].Line != 2 || filepath.Base(r.OutOfMemory[0].File) != "unet_2gpus.err" {
			t.Errorf("%s: %v", who, r.OutOfMemory)
		}
	}
}

// TestOutOfMemoryIsTheEnd checks that a message does not end the run if epochs
// follow (a failed allocation that was retried), and that other text about
// memory is not a message.
func TestOutOfMemoryIsTheEnd(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"again_2gpus.log":   cudaMark + oneEpoch,
		"later_2gpus.log":   oneEpoch + torchOld,
		"smaller_2gpus.log": "+ python train.py --batch-size 64\n" + torchNew + oneEpoch,
		"warned_2gpus.log":  "Warning: CUDA out of memory is likely with a larger batch\n" + oneEpoch,
		"talk_2gpus.log":    "Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom\nmemory: 0.53GiB, room for more\n" + oneEpoch,
	})
	logs, _ := explained(t, dir)
	var got []string
	for _, r := range logs.Runs {
		got = append(got, fmt.Sprintf("%s %s %d", filepath.Base(r.Dir), r.Info.Status, len(r.OutOfMemory)))
	}
	if want := "again_2gpus.log done 0, later_2gpus.log failed 1, smaller_2gpus.log done 1, talk_2gpus.log done 0, warned_2gpus.log done 0"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if text := logs.Reports.String(); !strings.Contains(text, "line 1 reports that memory ran out, but the run continued") {
		t.Error(text)
	}
	limits := BatchLimits(logs.Runs)
	if i := slices.IndexFunc(limits, func(l BatchLimit) bool { return l.Failing == 64 && l.Good == 0 }); i < 0 || !strings.Contains(limits[i].String(), "the job continued, perhaps with a smaller batch") {
		t.Errorf("a job that continued after memory ran out at 64: %+v", limits)
	}
}

// TestBatchLimits checks the last good and the first failing batch size of
// jobs. The batch size is in the file name or in the command, which set -x
// writes to the error file.
func TestBatchLimits(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"unet-bs16.out": oneEpoch, "unet-bs16.err": "+ python train.py --batch-size 16\n",
		"unet-bs32.out":   oneEpoch,
		"unet-77001.err":  "+ python train.py --batch-size 64\nTraceback (most recent call last):\n" + torchOld + torchOld,
		"unet-bs128.err":  slurmOld + srunTask,
		"resnet-b8.out":   oneEpoch,
		"lonely-bs4.err":  tfMessage,
		"nameless.err":    tfMessage,
		"odd-bs8.err":     tfMessage,
		"odd-bs16.out":    oneEpoch,
		"nothing-bs2.txt": "hello\n",
		"unsized.out":     oneEpoch,
		"rate-bs64.out":   "Model: resnet50\nBatch size: 64\nNumber of GPUs: 2\nImg/sec per GPU: 310.6 +-1.0\nTotal img/sec on 2 GPU(s): 621.2 +-2.0\n",
	})
	logs, _ := explained(t, dir)
	got := map[string]BatchLimit{}
	for _, l := range BatchLimits(logs.Runs) {
		got[l.Series] = l
	}
	for series, want := range map[string]string{
		"unet":     "unet: last good batch: 32; first failing batch: 64",
		"resnet":   "resnet: last good batch: 8; no job ran out of memory, so a larger one may fit",
		"lonely":   "lonely: first failing batch: 4; no job is known to have trained with a smaller one",
		"nameless": "nameless: a job ran out of memory, but its batch size is unknown",
		"rate":     "rate: last good batch: 64; no job ran out of memory, so a larger one may fit",
		"odd":      "odd: batch 16 trained, yet batch 8 ran out of memory: the jobs differ in more than their batch",
	} {
		if l := got[series]; !strings.HasPrefix(l.Verdict(), want) {
			t.Errorf("%s: %q, want %q", series, l.Verdict(), want)
		}
	}
	if len(got) != 6 {
		t.Errorf("series %v", got)
	}
	tried := got["unet"].Tried
	if len(tried) != 4 || tried[0].Batch != 16 || !tried[1].Fits || tried[2].Fits || tried[3].Batch != 128 {
		t.Fatalf("%+v", tried)
	}
	text := got["unet"].String()
	for _, part := range []string{
		"unet-bs32.out:2: epoch 1 is done", "unet-77001.err:3: PyTorch: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", "unet-77001.err:4: ",
		"batch 64: ran out of memory in ", "(batch-size of the command or configuration)", "unet-bs128.err:1: Slurm", "unet-bs128.err:2: Slurm",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the evidence does not contain %q:\n%s", part, text)
		}
	}
}

// TestBatchesOfScript: a script that tries several batch sizes in turn writes the commands to its output or
// to its error file, where the message is that memory ran out. The n-th command is that of the n-th run.
func TestBatchesOfScript(t *testing.T) {
	command := func(batch int) string { return fmt.Sprintf("+ python train.py --batch-size %d\n", batch) }
	for name, files := range map[string]map[string]string{
		"one file":                     {"unet_7.out": command(128) + kerasOf(5, "2.0") + command(256) + kerasOf(4, "1.5") + command(512) + torchOld},
		"the commands in the errors":   {"unet_7.output": kerasOf(5, "2.0") + kerasOf(4, "1.5"), "unet_7.err": command(128) + command(256) + command(512) + torchOld},
		"the commands in the output":   {"unet_7.output": command(128) + kerasOf(5, "2.0") + command(256) + kerasOf(4, "1.5") + command(512), "unet_7.err": torchOld},
		"the commands beside messages": {"unet_7.out": kerasOf(5, "2.0") + kerasOf(4, "1.5"), "unet_7.err": command(128) + "warning\n" + command(256) + command(512) + "Traceback (most recent call last):\n" + torchOld},
	} {
		dir := t.TempDir()
		write(t, dir, files)
		logs, _ := explained(t, dir)
		limits := BatchLimits(logs.Runs)
		if len(limits) != 1 || limits[0].Good != 256 || limits[0].Failing != 512 || len(limits[0].Tried) != 3 {
			t.Errorf("%s: %+v\n%s", name, limits, logs.Reports)
		}
	}
}

// TestBatchOfRunFolders checks run folders whose runs failed for lack of
// memory.
func TestBatchOfRunFolders(t *testing.T) {
	run := func(batch int, status, reason string) runs.Run {
		r := runs.Run{Dir: fmt.Sprintf("run-%d", batch), Kind: files.RunFolderKind, File: "epochs.csv", Info: runs.Info{Series: "ddp", BatchPerWorker: batch, Status: status, Error: reason}}
		if status == runs.StatusDone {
			r.Epochs = []runs.Epoch{{Epoch: 1, Line: 2}}
		}
		return r
	}
	l := BatchLimits([]runs.Run{
		run(8, runs.StatusDone, ""), run(64, runs.StatusFailed, "the program needs 90 GiB of GPU memory at batch 64, of which …"), run(32, runs.StatusFailed, "rank 1 was killed"),
	})
	if len(l) != 1 || l[0].Verdict() != "ddp: last good batch: 8; first failing batch: 64" {
		t.Errorf("%v", l)
	}
}
