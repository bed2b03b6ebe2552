package textlog

import (
	"testing"

	"lockstep/pkg/logread/internal/recordtest"
)

func FuzzReadStudyOutput(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "unet/stdout_n1.txt")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "stdout_n1.txt", text) })
}

func FuzzReadSC21(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "sc21/base/4GPU/00/out.log", "sc21/pm-crop64-1234567.out")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "out.log", text) })
}

func FuzzReadBenchy(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "sc21/trials/baseline_1gpu.out")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "out.log", text) })
}

func FuzzReadKeras(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "keras/resnet-501.out", "keras/1/horovod_gpus-2.log")
	const bar = "\x1b[1m9/9\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m 245ms/step - accuracy: 0.25 - loss: 2.0000\n"
	f.Add([]byte("Epoch 1/2\n" + bar + bar + "Epoch 2/2\n9/9 - 0s - loss: 1.0\n9/9 - 1s - loss: 1.0 - val_loss: 2.0\n" + bar + bar))
	f.Add([]byte("5/5 - 1s - loss: 1.0\nEpoch 1/1\nEpoch 1/1\n9/9 - 1s - loss: 1.0\n9/9 - 1s - loss: 1.0\n5/5 - 1s - loss: 1.0\n5/5 - 1s - loss: 1.0\nEpoch 1/1\n9/9 - 1s - loss: 1.0\n5/5 - 1s - loss: 1.0\n"))
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "job-501.out", text) })
}

func FuzzReadBashTime(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "slurm/resnet50-2001.out", "slurm/resnet50_n16.out")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "job-2001.out", text) })
}

func FuzzReadTimes(f *testing.F) {
	f.Add([]byte("Epoch 1/1\n9/9 - 5s - loss: 1.0\npython a.py -n 2  12.34s user 0,45s system 98% cpu 2:12.98 total\ntee a  0.00s user 0.00s system 0% cpu 12.9 total\nb  1.0s user 1.0s sys"))
	f.Add([]byte("Command terminated by signal 9\n11.20user 0.50system 1:02:03elapsed 98%CPU (0avgtext+0avgdata 76116maxresident)k\n0inputs+8outputs (0major+2592minor)pagefaults 0swaps\n"))
	f.Add([]byte("\tCommand being timed: \"python a.py\"\n\tElapsed (wall clock) time (h:mm:ss or m:ss): 0:16.19\n\tSwaps: 0\n\tExit status: 1\nSwaps: 0\n"))
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "job-2001.out", text) })
}

func FuzzReadSeff(f *testing.F) {
	f.Add([]byte("Job ID: 1234\nArray Job ID: 1230_4\nCluster: a\nState: TIMEOUT (exit code 0)\nNodes: 2\nJob Wall-clock time: 1-01:02:03\nJob ID: 1235\nNodes: 1\nEpoch 1/1\n9/9 - 5s - loss: 1.0\n"))
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "job-2001.out", text) })
}

func FuzzReadCollectives(f *testing.F) {
	f.Add([]byte("# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 2 minBytes 8 maxBytes 16\n#  Rank  0 Group  0 Pid 1 on a device 0 [0x07] A\n#  Rank  1 Group  0 Pid 1 on a device 1 [0x07] A\n# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n8 2 float sum -1 4.4 0.0 0.0 0 4.2 0.0 0.0 N/A\n16 4 float sum -1 5.4 1.0 1.0 0 5.2 1.0 1.0 0\n# Avg bus bandwidth    : 1.0\nEpoch 1/1\n9/9 - 5s - loss: 1.0\n"))
	f.Add([]byte("# nThread 2 nGpus 2 minBytes 8 maxBytes 16\n# size count type redop time algbw busbw error time algbw busbw error\n8 2 float sum 4.4 1.0 1.0 0e+00 4.2 1.0 1.0\n"))
	f.Add([]byte("mpirun -np 8 ./osu_allreduce -f\n# OSU MPI Allreduce Latency Test v7.4\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n4     1.98\n8     2.0e1   3\n\n# OSU MPI Latency Test v7.4\n# Size  Latency (us)\n1   0.5\n# OSU MPI-CUDA Allreduce Latency Test\n4 5.1"))
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "nccl-2.log", text) })
}

func FuzzReadRates(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "srun/hep.log")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "hep.log", text) })
}

func FuzzReadHorovod(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "horovod/synthetic.log")
	f.Add([]byte("Model: a\nBatch size: 5\nTotal img/sec on 2 GPU(s): 11.0 +-0.5\nModel: b\nBatch size: 5\nreal 0m5s\nBatch size: 5\n"))
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "synthetic.log", text) })
}

func FuzzReadMLPerf(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "mlperf/result_0.txt")
	f.Add([]byte("0: :::MLLOG {\"time_ms\": 1, \"key\": \"run_start\"}\n0: :::MLLOG {\"time_ms\": 2, \"key\": \"block_start\", \"metadata\": {\"first_epoch_num\": 1, \"epoch_count\": 4}}\n0: :::MLLOG {\"time_ms\": 9, \"key\": \"block_stop\", \"metadata\": {\"first_epoch_num\": 1}}\n56: :::MLLOG {\"time_ms\": 9, \"key\": \"eval_accuracy\", \"value\": 0.5, \"metadata\": {\"epoch_num\": 4}}\n56: :::MLLOG {\"time_ms\": 9, \"key\": \"run_stop\"}\n"))
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "result_0.txt", text) })
}

func FuzzReadDLLogger(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "dllogger/log_8gpu.json")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "log.json", text) })
}

func FuzzReadTorchrun(f *testing.F) {
	f.Add([]byte("0: [default1]:[titan] 2021-11-12 00:32:26,118 - root - INFO - step:  1  loss:  8.1\n5000: [default2000]:Epoch 1/1\n1: [rank7]: [titan] step: 2 loss: 1\n[prterun-a-1@1,3]<stdout>:Epoch 1/1\n"))
	recordtest.AddFuzzSeeds(f, "torchrun/ddp_4gpus.log", "titan/llama_8gpu.log")
	f.Fuzz(func(t *testing.T, text []byte) { fuzzText(t, "ddp.log", text) })
}

// fuzzText reads text as a text log and checks that no line is counted as both
// used and ignored.
func fuzzText(t *testing.T, path string, text []byte) {
	t.Helper()
	_, report := recordtest.ReadAndCheckFormat(t, Format(), path, text)
	counted := report.LinesUsed
	for _, i := range report.Ignored {
		counted += i.Lines
	}
	if counted > report.Lines {
		t.Errorf("%d lines used or ignored, of %d", counted, report.Lines)
	}
}
