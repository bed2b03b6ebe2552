package system_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/textlog"
	"lockstep/pkg/runs"
)

// read reads a text log, and returns its parts and the report.
func read(t *testing.T, text string) ([]*record.Part, *record.Report) {
	t.Helper()
	in := &record.Input{Path: "a.log", Reader: strings.NewReader(text), Size: int64(len(text)), Report: &record.Report{Path: "a.log"}}
	parts, err := textlog.Format().Read(t.Context(), in)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return parts, in.Report
}

// keras is the output of a run with one epoch.
const keras = "Epoch 1/1\n196/196 - 49s - loss: 2.5\n"

// TestTimes: the time that a shell or GNU time prints after a command is the wall time of the run
// before it, and what follows is another run.
func TestTimes(t *testing.T) {
	const gnu = "\tCommand being timed: \"python train.py --epochs 2\"\n\tElapsed (wall clock) time (h:mm:ss or m:ss): "
	for text, want := range map[string]string{
		"real\t2m11.5s\nuser\t9m1.0s\nsys\t0m1.0s\n": "131.5",
		"real\t342m0,25s\n":                          "20520.25", // minutes exceed 60, and a decimal comma
		"real 12.5\n":                                "12.5",     // time -p
		"11.20user 0.50system 0:13.01elapsed 98%CPU (0avgtext+0avgdata 76116maxresident)k\n":                                    "13.01",
		gnu + "1:02:03\n\tExit status: 0\n":                                                                                     "3723",
		"python train.py  11.20s user 0.50s system 98% cpu 1:13.25 total\n":                                                     "73.25",
		"python train.py  11.20s user 0.50s system 98% cpu 13.25 total\ntee out.log  0.1s user 0.1s system 1% cpu 14.0 total\n": "13.25",
	} {
		parts, _ := read(t, keras+text+keras)
		if len(parts) != 2 || fmt.Sprint(parts[0].Run.WallSeconds) != want || parts[1].Run.WallSeconds != 0 {
			t.Errorf("%q: got %d runs, the first with %g s; want 2, the first with %s s", text, len(parts), parts[0].Run.WallSeconds, want)
		}
	}
}

// TestFailures: a message about the end of a program sets the status of the run and the reason. A
// message that memory ran out counts only if the run did not continue.
func TestFailures(t *testing.T) {
	const memory = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
	const torchrun = "Root Cause (first observed failure):\n[0]:\n  time      : 2022-03-07_12:00:00\n  host      : node01\n  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 12345)\n  error_file: <N/A>\n"
	const limit = "slurmstepd: error: *** JOB 1 ON node01 CANCELLED AT 2024-05-04T10:00:00 DUE TO TIME LIMIT ***\n"
	preempted := strings.Replace(limit, "TIME LIMIT", "PREEMPTION", 1)
	for text, want := range map[string]string{
		"":                     " ",
		memory:                 "failed out of memory: PyTorch: " + strings.TrimSpace(memory) + " (line 3)",
		memory + "Epoch 2/2\n": "failed out of memory: PyTorch: " + strings.TrimSpace(memory) + " (line 3)", // no epoch follows
		memory + "Epoch 2/2\n196/196 - 45s - loss: 1.5\n": " ",
		torchrun:                           "failed torchrun: rank 3 failed on node01 with exit code 1 (line 3)",
		torchrun + "====\nrank: 4\n":       "failed torchrun: rank 3 failed on node01 with exit code 1 (line 3)", // after the block
		"Command terminated by signal 9\n": "failed terminated by signal 9",
		preempted + "Epoch 2/2\n196/196 - 45s - loss: 1.5\n":                    " ",
		limit + "Epoch 2/2\n196/196 - 45s - loss: 1.5\n":                        "canceled Slurm: JOB 1 ON node01 CANCELLED AT 2024-05-04T10:00:00 DUE TO TIME LIMIT", // before it was killed
		limit + "Resuming from last.pt\nEpoch 2/2\n196/196 - 45s - loss: 1.5\n": " ",
		preempted + "Epoch 2/2\n196/196 - 45s - loss: 1.5\n" + limit:            "canceled Slurm: JOB 1 ON node01 CANCELLED AT 2024-05-04T10:00:00 DUE TO TIME LIMIT",
		preempted: "canceled Slurm: JOB 1 ON node01 CANCELLED AT 2024-05-04T10:00:00 DUE TO PREEMPTION",
		"slurmstepd: error: *** JOB 1234 ON node01 CANCELLED AT 2024-05-04T10:00:00 DUE TO TIME LIMIT ***\n": "canceled Slurm: JOB 1234 ON node01 CANCELLED AT 2024-05-04T10:00:00 DUE TO TIME LIMIT",
	} {
		parts, _ := read(t, strings.Replace(keras, "1/1", "1/2", 1)+text)
		if got := parts[0].Run.Info.Status + " " + parts[0].Run.Info.Error; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestWorld: lines that state the number of workers count before the values of a run. After them,
// they belong to the next run.
func TestWorld(t *testing.T) {
	for text, want := range map[string]string{
		"World size: 8\n" + keras:                                     "8",
		"WORLD_SIZE=8\n" + keras:                                      "8",
		"Number of replicas in sync: 8, of which\n" + keras:           "8",
		"World size: 8 GB\n" + keras:                                  "0",
		"World size: 0\n" + keras:                                     "0",
		"Rank 3 of 8\n" + keras:                                       "8",
		"[rank 3/8] starting\n" + keras:                               "8",
		"[rank 8/8] starting\n" + keras:                               "0", // ranks count from 0
		"Rank 3 of 8x\n" + keras:                                      "0",
		"World size: 2\nWorld size: 8\nWorld size: 4\n" + keras:       "8",
		"Num processes: 2\nhvd.size() = 2\n" + keras:                  "2",
		keras + "World size: 8\nEpoch 1/1\n196/196 - 45s - loss: 1\n": "0",
	} {
		parts, _ := read(t, text)
		if got := fmt.Sprint(parts[0].Run.Info.Workers); got != want {
			t.Errorf("%q: got %s workers, want %s", text, got, want)
		}
	}
	parts, _ := read(t, keras+"real\t2m11.5s\nWorld size: 8\n"+keras)
	if len(parts) != 2 || parts[0].Run.Info.Workers != 0 || parts[1].Run.Info.Config["world_size"] != 8.0 {
		t.Errorf("after the first run: got %d runs with %d workers and the settings %v, want world_size 8 of the second", len(parts), parts[0].Run.Info.Workers, parts[1].Run.Info.Config)
	}
}

// TestDevices: lines that state the devices of a program count if nothing else states the workers, and
// rather than workers that are computed from the batch sizes.
func TestDevices(t *testing.T) {
	const batches = "***** Running training *****\n  Num examples = 64\n  Num Epochs = 1\n  Instantaneous batch size per device = 8\n" +
		"  Total train batch size (w. parallel, distributed & accumulation) = 32\n  Gradient Accumulation steps = 1\n  Total optimization steps = 2\n{'loss': 1.0, 'learning_rate': 2e-05, 'epoch': 1.0}\n"
	for text, want := range map[string]string{
		"Let's use 2 GPUs!\n":                        "2",
		"=> using 2 GPUs\n":                          "2",
		"Using 2 GPU(s), 4 workers\n":                "2",
		"Training on 2 devices\n":                    "2",
		"Multi-GPU training with 2 GPUs.\n":          "2",
		"num_gpus: 2\n":                              "2",
		"n_gpus=2, lr=0.1\n":                         "2",
		"gpu_ids: [0, 3]\n":                          "2",
		"CUDA_VISIBLE_DEVICES=0,1\n":                 "2",
		"Number of GPUs: 2\n":                        "2",
		"Number of GPUs: 8\nSelected GPUs: 0,3\n":    "2", // a list rather than a number
		"Selected GPUs: 0,3\nNumber of GPUs: 8\n":    "2",
		"Using 8 GPUs\nWorld size: 2\n":              "2",
		"World size: 2\nUsing 8 GPUs\n":              "2",
		"+ srun -n 2 python a.py\nUsing 8 GPUs\n":    "2",
		"[rank0]: Using 8 GPUs\n[rank1]: a\n":        "8",
		"Using 2 GPUs per node\n":                    "", // and what states no devices
		"Using 2 GPU-hours\n":                        "",
		"Using TensorFlow backend.\n":                "",
		"Found 2 GPUs\nn_gpu: 1\ngpus: 0\n":          "",
		"CUDA_VISIBLE_DEVICES=0\ngpu_ids: 3\n":       "", // the number of a device
		"gpus: 2 of 8\nnum_gpus_per_node: 2\nGPUs\n": "",
		"INFO:tensorflow:Using MirroredStrategy with devices ('/job:localhost/replica:0/task:0/device:GPU:0', '/job:localhost/replica:0/task:0/device:GPU:1')\n": "2",
	} {
		for values, derived := range map[string]string{keras: "0", batches: "4"} {
			parts, _ := read(t, text+values)
			if got := workersOf(parts); got != cmp.Or(want, derived) {
				t.Errorf("%q, then %.9q: got %s workers, want %s", text, values, got, cmp.Or(want, derived))
			}
		}
	}
	const next = "Epoch 2/2\n196/196 - 45s - loss: 1\n"
	for text, want := range map[string]string{
		"World size: 2\n" + keras + "World size: 4\n" + next:              "2; 4", // another number after values begins a run
		"World size: 2\n" + keras + "World size: 2\n" + next:              "2",
		"Using 2 GPUs\n" + keras + next + "Using 4 GPUs\n" + keras:        "2; 4",
		"Using 2 GPUs\n" + keras + "Using 2 GPUs\n" + next:                "2",
		"Using 2 GPUs\n" + keras + next + "Using 2 GPUs\n" + keras + next: "2; 2",
		keras + next + "Using 2 GPUs\n" + keras:                           "0; 2",
	} {
		parts, _ := read(t, strings.ReplaceAll(text, keras, strings.Replace(keras, "1/1", "1/2", 1)))
		if got := workersOf(parts); got != want {
			t.Errorf("%q: got %s workers, want %s", text, got, want)
		}
	}
}

// TestHeaderSettings: lines before the values state the mode and the precision; later ones belong to the
// next run.
func TestHeaderSettings(t *testing.T) {
	for text, want := range map[string]string{
		"precision: fp16\n":                                                   "map[precision:fp16]",
		"dtype: torch.bfloat16\n":                                             "map[dtype:bfloat16]",
		"mode: inference\nXLA: enabled\n":                                     "map[XLA:true mode:inference]",
		"mode: train\nmode: eval\n":                                           "map[mode:train]", // the first counts
		"torch.compile: disabled\nfp16 ............ True\n":                   "map[fp16:true torch.compile:false]",
		"AMP not enabled. Training in torch.float32.\n":                       "map[precision:float32]",
		"AMP not enabled. Training in float32.\n":                             "map[precision:float32]",
		"Using native Torch AMP. Training in mixed precision.\n":              "map[precision:mixed precision]",
		"Using 16bit native Automatic Mixed Precision (AMP)\n":                "map[mixed precision:true precision:16bit]",
		"Using bfloat16 Automatic Mixed Precision (AMP)\n":                    "map[mixed precision:true precision:bfloat16]",
		"Running in fp32\n":                                                   "map[precision:fp32]",
		"precision: 0.85\nmode switched to eval\nUsing 16bit files\n":         "map[]",
		keras + "precision: fp16\n":                                           "map[precision:fp16]", // no run follows
		"Namespace(data='/d', lr=0.1, amp=True, seed=7, model='r', rank=3)\n": "map[amp:true lr:0.1 model:r seed:7]",
		"Namespace(world_size=1, batch_size=8)\n":                             "map[batch_size:8]",
		"Namespace(world_size=2, batch_size=8)\n":                             "map[batch_size:8 world_size:2]",
		"Namespace(world_size=2, multiprocessing_distributed=True, lr=0.5)\n": "map[lr:0.5]",
	} {
		parts, _ := read(t, text+keras)
		if got := fmt.Sprint(parts[0].Run.Info.Config); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	next := strings.Replace(keras, "1/1", "2/2", 1)
	for text, want := range map[string]string{
		"Namespace(a=1, lr=0.1)\n" + keras + "Namespace(a=2, lr=0.5)\n" + next: "map[epochs:2 lr:0.1] map[epochs:2 lr:0.5]",
		"Namespace(a=1, lr=0.1)\n" + keras + "Namespace(a=2, lr=0.1)\n" + next: "map[epochs:2 lr:0.1]",
		"mode: train\n" + keras + "mode: eval\n" + next:                        "map[epochs:2 mode:train]",
		"amp: on\n" + keras + next + "amp: off\n" + keras:                      "map[amp:true epochs:2] map[amp:false epochs:2]",
	} {
		parts, _ := read(t, strings.ReplaceAll(text, "1/1", "1/2"))
		var got []string
		for _, p := range parts {
			got = append(got, fmt.Sprint(p.Run.Info.Config))
		}
		if configs := strings.Join(got, " "); configs != want {
			t.Errorf("%q: got %s, want %s", text, configs, want)
		}
	}
}

// workersOf returns the workers that the evidence of each part states.
func workersOf(parts []*record.Part) string {
	var all []string
	for _, p := range parts {
		n := int64(p.Run.Info.Workers)
		for _, e := range p.Evidence {
			if e.Property == runs.PropertyWorkers && n == 0 {
				n = e.Number
			}
		}
		all = append(all, fmt.Sprint(n))
	}
	return strings.Join(all, "; ")
}

// TestCommand: a command states the workers and the settings of the run whose values follow. A
// command after values begins a run; text that only looks like a command does not.
func TestCommand(t *testing.T) {
	const torchrun = "+ torchrun --nproc_per_node=4 train.py --lr 0.5 --batch_size=64\n"
	for _, c := range []struct{ text, want string }{
		{torchrun + keras, "4 lr 0.5 batch_size 64"},
		{torchrun + keras + "srun -n 2 python train.py\n" + keras, "4 lr 0.5 batch_size 64; 2 lr <nil> batch_size <nil>"},
		{"srun -n 2 python train.py --lr 0.25\npython train.py --lr 0.5\n" + keras, "2 lr 0.25 batch_size <nil>"}, // what srun starts
		{"+ OMP_NUM_THREADS=4 torchrun --nproc_per_node=2 a.py\n" + keras + "+ OMP_NUM_THREADS=4 torchrun --nproc_per_node=4 a.py\n" + keras, "2 lr <nil> batch_size <nil>; 4 lr <nil> batch_size <nil>"},
		{"NCCL_DEBUG=INFO CUDA_VISIBLE_DEVICES=0,1 python a.py --lr 0.5\n" + keras, "2 lr 0.5 batch_size <nil>"},
		{"+ env A=1 nohup python a.py --gpus 2\n" + keras, "2 lr <nil> batch_size <nil>"},
		{"+ CUDA_VISIBLE_DEVICES=0,1\n+ python a.py\n" + keras, "2 lr <nil> batch_size <nil>"},
		{"+ export CUDA_VISIBLE_DEVICES=3\n+ CUDA_VISIBLE_DEVICES=3\n+ python a.py\n" + keras + "+ CUDA_VISIBLE_DEVICES=0,1\n+ python a.py\n" + keras, "1 lr <nil> batch_size <nil>; 2 lr <nil> batch_size <nil>"},
		{"+ torchrun --nproc_per_node=2 a.py --lr 0.5 --comment 'with --lr 0.1 and 5'\n" + keras, "2 lr 0.5 batch_size <nil>"},
		{"+ srun bash -c 'torchrun --nproc_per_node=2 a.py --lr 0.5 '\n" + keras, "2 lr 0.5 batch_size <nil>"},
		{"NOTE=5 is no command of a.py\n" + keras, "0 lr <nil> batch_size <nil>"},
		{"python train.py: cannot open file\n" + keras, "0 lr <nil> batch_size <nil>"},
		{"python is fine\n" + keras, "0 lr <nil> batch_size <nil>"},
	} {
		parts, _ := read(t, c.text)
		var got []string
		for _, p := range parts {
			workers := int64(0)
			for _, e := range p.Evidence {
				if e.Property == runs.PropertyWorkers {
					workers = e.Number
				}
			}
			got = append(got, fmt.Sprintf("%d lr %v batch_size %v", workers, p.Run.Info.Config["lr"], p.Run.Info.Config["batch_size"]))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%q: got %s, want %s", c.text, strings.Join(got, "; "), c.want)
		}
	}
}

// TestSeff: the summary of a job is the accounting of the only job in the file, to which its runs
// belong. Without the line with the time, its lines are of unknown form.
func TestSeff(t *testing.T) {
	const job = "Job ID: 1234\nCluster: hpc\nState: FAILED (exit code 1)\nNodes: 2\nCPU Utilized: 16:08:54\nJob Wall-clock time: 1-01:02:03\n"
	parts, _ := read(t, keras+job)
	if len(parts) != 2 || parts[1].Role != record.Accounting || parts[0].Run.Info.JobIDs[record.SlurmJobKey] != "1234" {
		t.Fatalf("got %d parts, want a run and its accounting", len(parts))
	}
	r := parts[1].Run
	if got := fmt.Sprint(r.WallSeconds, " ", r.Info.Nodes, " ", r.Info.Status, " ", r.Info.JobIDs[record.SlurmJobKey]); got != "90123 2 failed 1234" { // 86400 + 3600 + 123
		t.Errorf("got %s, want 90123 s, 2 nodes and the status failed of job 1234", got)
	}
	if parts, _ = read(t, keras+job+strings.ReplaceAll(job, "1234", "1235")); len(parts) != 3 || parts[0].Run.Info.JobIDs[record.SlurmJobKey] != "" {
		t.Errorf("two jobs: got %d parts, and the run belongs to job %q; want 3, and none", len(parts), parts[0].Run.Info.JobIDs[record.SlurmJobKey])
	}
	parts, report := read(t, keras+"Job ID: 1234\nCluster: hpc\n")
	if len(parts) != 1 || report.LinesUsed != 2 || len(report.Ignored) != 1 || report.Ignored[0].Lines != 2 {
		t.Errorf("without a time: got %d parts, %d used lines and %v, want 1, 2 and 2 ignored lines", len(parts), report.LinesUsed, report.Ignored)
	}
}
