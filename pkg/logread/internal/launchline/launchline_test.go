package launchline

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/record"
)

// TestParse checks what commands state. The options are those of Slurm's srun, Open MPI's and
// Intel's mpirun, horovodrun, torchrun, accelerate launch and deepspeed.
func TestParse(t *testing.T) {
	for command, want := range map[string]Launch{
		"srun -n 8 python train.py":                                                                     {8, 0, "train.py", "srun", 0},
		"srun -n8 -N2 python train.py":                                                                  {8, 2, "train.py", "srun", 0},
		"srun --ntasks=8 --nodes=2 python -u /x/train.py --lr 0.1":                                      {8, 2, "train.py", "srun", 0},
		"srun --nodes 2 --ntasks-per-node 4 python train.py":                                            {8, 2, "train.py", "srun", 0},
		"srun --nodes=1-2 python train.py":                                                              {0, 0, "train.py", "srun", 0},
		"/usr/bin/srun -l -n 4 python a.py -n 100":                                                      {4, 0, "a.py", "srun", 0}, // -n of the program
		"srun -n 1 python a.py --n_gpus 4":                                                              {4, 0, "a.py", "srun", 0},
		"srun -n 8 python a.py --gpus 4":                                                                {8, 0, "a.py", "srun", 0},
		"mpirun -np 4 python a.py":                                                                      {4, 0, "a.py", "mpirun", 0},
		"mpirun -np 4 -H node1:2,node2:2 python a.py":                                                   {4, 2, "a.py", "mpirun", 0},
		"mpiexec -n 16 osu_allreduce -m 8:8":                                                            {16, 0, "osu_allreduce", "mpiexec", 0},
		"horovodrun -np 4 -H localhost:4 python a.py":                                                   {4, 1, "a.py", "horovodrun", 0},
		"torchrun --nproc_per_node 4 --nnodes 2 a.py":                                                   {8, 2, "a.py", "torchrun", 0},
		"torchrun --standalone --nproc-per-node=4 a.py --nnodes 3":                                      {4, 1, "a.py", "torchrun", 0}, // of the program
		"torchrun --nproc_per_node=gpu a.py":                                                            {0, 1, "a.py", "torchrun", 0},
		"torchrun --nproc_per_node 4 --nnodes $SLURM_NNODES a.py":                                       {0, 0, "a.py", "torchrun", 0},
		"torchrun --nproc_per_node 4 --nnodes 1:4 a.py":                                                 {0, 0, "a.py", "torchrun", 0},
		"srun -N 2 -n 2 torchrun --nproc_per_node 4 --nnodes 2 a.py":                                    {8, 2, "a.py", "srun", 0},
		"python -m torch.distributed.launch --nproc_per_node=2 a.py":                                    {2, 1, "a.py", "", 0},
		"accelerate launch --num_processes 8 --num_machines 2 a.py":                                     {8, 2, "a.py", "accelerate", 0},
		"deepspeed --num_gpus 4 a.py --deepspeed":                                                       {4, 1, "a.py", "deepspeed", 0},
		"deepspeed --num_gpus 4 --num_nodes 2 a.py":                                                     {8, 2, "a.py", "deepspeed", 0},
		"OMP_NUM_THREADS=4 CUDA_VISIBLE_DEVICES=0,1 time torchrun --nproc_per_node 2 a.py":              {2, 1, "a.py", "torchrun", 0},
		"python a.py --n_gpus=2":                                                                        {2, 0, "a.py", "", 0},
		"python a.py --num-devices 2":                                                                   {2, 0, "a.py", "", 0},
		"python -m unet.train --n-gpus 2":                                                               {2, 0, "unet.train", "", 0},
		"./train --gpus 2":                                                                              {2, 0, "", "", record.Device},
		"srun ./train --n_gpus 2":                                                                       {0, 0, "", "srun", 0}, // maybe of srun
		"python main.py --multiprocessing-distributed --world-size 2 --rank 0":                          {0, 2, "main.py", "", 0},
		"srun -n 4 python main.py --multiprocessing-distributed --world-size 4":                         {0, 4, "main.py", "srun", 0},
		"CUDA_VISIBLE_DEVICES=0,1 python main.py --multiprocessing-distributed --world-size 1 --rank 0": {2, 1, "main.py", "", record.DeviceList},
		"python a.py":                  {0, 0, "a.py", "", 0},
		"srun -n 15000000 python a.py": {0, 0, "a.py", "srun", 0},
		"":                             {},
	} {
		if got := ParseCommand(strings.Fields(command)); got != want {
			t.Errorf("%q: got %+v, want %+v", command, got, want)
		}
	}
}

// TestOptions checks the options of programs, also of those with empty words.
func TestOptions(t *testing.T) {
	got := ProgramOptions([]string{"CUDA_VISIBLE_DEVICES=0", "TF_XLA_FLAGS=--a=2", "python", "train.py", "", "--lr", "-0.1", "--amp", "--out=a", "data", "a.precision=16", "x.yaml", "", "|", "tee", "x"})
	want := map[string]string{"lr": "-0.1", "amp": "true", "out": "a", "word 1": "data", "a.precision": "16", "word 2": "x.yaml", "TF_XLA_FLAGS": "--a=2"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for command, want := range map[string]map[string]string{
		"accelerate launch --num_processes 2 --mixed_precision fp16 --config_file=a/fsdp.yaml --use_fsdp a.py": {"mixed_precision": "fp16", "config_file": "a/fsdp.yaml", "use_fsdp": "true"},
		"horovodrun -np 2 --autotune --fp16-allreduce python a.py --lr 1":                                      {"autotune": "true", "fp16_allreduce": "true", "lr": "1"},
		"torchrun --nproc_per_node 2 -m pkg.train --amp -m 8":                                                  {"amp": "true", "m": "8"},
		"srun -m block python -m torch.distributed.run --nproc_per_node 2 -m pkg.train --amp":                  {"amp": "true"},
		"python -m": {},
	} {
		if got := ProgramOptions(strings.Fields(command)); !maps.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", command, got, want)
		}
	}
}

// parseScript reads a job script.
func parseScript(t *testing.T, text string) (*Script, *record.Report) {
	t.Helper()
	in := &record.Input{Path: "job.sh", Reader: strings.NewReader(text), Report: &record.Report{Path: "job.sh"}}
	parts, err := readScript(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	return parts[0].Source.(*Script), in.Report
}

// TestScripts checks which command of a script counts for a log.
func TestScripts(t *testing.T) {
	const head = "#!/bin/bash\n#SBATCH --job-name=unet\n#SBATCH --nodes=2 --ntasks=8\n#SBATCH -o logs/%x-%j.out\n"
	for name, c := range map[string]struct {
		text, log, script string
		workers, nodes    int
		ok                bool
	}{
		"directives":             {head + "srun python train.py\n", "a.out", "", 8, 2, true},
		"directives alone":       {head + "bash run.sh\n", "a.out", "", 8, 2, true},
		"tasks per node":         {"#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\nsrun python train.py\n", "a.out", "", 8, 2, true},
		"not the first srun":     {head + "srun -n 1 python prepare.py\nsrun -n 4 python train.py\n", "a.out", "", 4, 2, true},
		"the program of the log": {head + "srun -n 1 python prepare.py\nsrun -n 4 python train.py\n", "a.out", "prepare.py", 1, 2, true},
		"no program":             {head + "srun -n 2 hostname\nsrun -n 4 python resnet.py\n", "a.out", "", 4, 2, true},
		"unknown which":          {head + "srun -n 2 python a.py\nsrun -n 4 python b.py\n", "a.out", "", 2, 2, false},
		"redirections":           {head + "srun -n 2 python train.py > a2.out\nsrun -n 4 python train.py > a4.out 2>&1\n", "logs/a4.out", "", 4, 2, true},
		"tee":                    {head + "srun -n 2 python train.py | tee a2.out\nsrun -n 4 python train.py 2>&1 | tee -a a4.out\n", "a2.out", "", 2, 2, true},
		"variables":              {head + "NGPU=4\nexport SCRIPT=train.py\ntorchrun --nproc_per_node $NGPU --nnodes ${SLURM_NNODES} $SCRIPT\n", "a.out", "", 8, 2, true},
		"continued":              {head + "srun -n 4 \\\n  -N 1 \\\n  python train.py\n", "a.out", "", 4, 1, true},
		"comment":                {head + "# srun -n 16 python train.py\nsrun -n 4 python train.py\n", "a.out", "", 4, 2, true},
		"GPUs of a node":         {"#SBATCH --nodes=2 --gres=gpu:a100:4\ntorchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE train.py\n", "a.out", "", 8, 2, true},
		"without Slurm":          {"mpirun -np 4 python train.py\n", "a.out", "", 4, 0, true},
	} {
		s, report := parseScript(t, c.text)
		l, ok := s.FindLaunch(c.log, c.script)
		if ok != c.ok || ok && (l.Workers != c.workers || l.Nodes != c.nodes) {
			t.Errorf("%s: got %d workers on %d nodes (%v), want %d on %d (%v)", name, l.Workers, l.Nodes, ok, c.workers, c.nodes, c.ok)
		}
		n := report.LinesUsed
		for _, i := range report.Ignored {
			n += i.Lines
		}
		if n != report.Lines {
			t.Errorf("%s: %d lines used or ignored, of %d", name, n, report.Lines)
		}
	}
}

// TestMatches checks to which logs a script belongs.
func TestMatches(t *testing.T) {
	s, _ := parseScript(t, "#SBATCH --job-name=unet --output=%x-%j.out\nsrun -n 4 python train.py > x.log\n")
	for log, want := range map[string]bool{
		"logs/unet-123.out": true, "unet-123.out.gz": true, "resnet-123.out": false, "x.log": true, "job4.log": true, "job4-12.err": true, "job40.log": false, "other.log": false,
	} {
		if got := s.MatchesLog("dir/job4.sh", log); got != want {
			t.Errorf("%s: got %v", log, got)
		}
	}
}

// TestNoScript: a shell script that starts nothing is no job script.
func TestNoScript(t *testing.T) {
	in := &record.Input{Path: "a.sh", Reader: strings.NewReader("#!/bin/sh\necho hello\n"), Report: &record.Report{}}
	if _, err := readScript(context.Background(), in); !errors.Is(err, record.ErrUnknownFormat) {
		t.Errorf("error %v", err)
	}
}

// FuzzScript: no script makes the reader fail, and each number is in its limits.
func FuzzScript(f *testing.F) {
	f.Add("#SBATCH --ntasks=8 --nodes=2 -o a%j.out\nN=4\nsrun -n $N python a.py > b.out\n")
	f.Add("torchrun --nproc_per_node=4 \\\n --nnodes 2 a.py | tee -a b\n")
	f.Fuzz(func(t *testing.T, text string) {
		in := &record.Input{Path: "a.sh", Reader: strings.NewReader(text), Report: &record.Report{}}
		parts, err := readScript(context.Background(), in)
		if err != nil {
			return
		}
		s := parts[0].Source.(*Script)
		l, _ := s.FindLaunch("b.out", "a.py")
		if l.Workers < 0 || l.Nodes < 0 || l.Nodes > maxParsedCount {
			t.Errorf("%+v", l)
		}
		s.MatchesLog("a.sh", "b.out")
	})
}
