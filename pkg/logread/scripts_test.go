package logread

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/runs"
)

// identities returns workers, nodes and the source of the workers of each run in the files, and
// the text of all reports.
func identities(t *testing.T, files map[string]string) (got []string, says string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	logs, _ := explained(t, dir)
	for _, r := range logs.Runs {
		name, _ := filepath.Rel(dir, r.Dir)
		got = append(got, fmt.Sprintf("%s %d %d %s", name, r.Info.Workers, r.Info.Nodes, r.Origins[runs.PropertyWorkers].Source))
	}
	return got, logs.Reports.String()
}

// TestConfigurationsBeside checks what configurations and job scripts beside a log state, which of
// several sources counts, and that the report contains contradictions.
func TestConfigurationsBeside(t *testing.T) {
	const script = "#!/bin/bash\n#SBATCH --ntasks=8 --nodes=2 --output=%j.out\nsrun -n 1 python prepare.py\nsrun python train.py\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		says  string // expected in the reports; a text that begins with ! is not expected
	}{
		"LightningCLI": {
			map[string]string{"a/out.log": oneEpoch, "a/config.yaml": "seed_everything: 7\ntrainer:\n  devices: 4\n  num_nodes: 2\n"},
			[]string{"a/out.log 8 2 a configuration"},
			"workers 8: from a configuration (config.yaml: trainer/devices × trainer/num_nodes)",
		},
		"LightningCLI, a list": {
			map[string]string{"a/out.log": oneEpoch, "a/config.yaml": "trainer:\n  devices: [0, 1, 2]\n"},
			[]string{"a/out.log 3 0 a configuration"},
			"",
		},
		"a job script with the settings of the program": {
			map[string]string{"a/out.log": oneEpoch, "a/job.sh": "srun -n 4 python train.py --seed 3 --batch_size 32 --arch resnet50\n"},
			[]string{"a/out.log 4 0 a configuration"},
			`seed 3: from a configuration (job.sh, line 1: srun -n 4 python train.py --seed 3 --batch_size 32 --arch resnet50: seed)
    known: batch 32: from a configuration (job.sh, line 1: srun -n 4 python train.py --seed 3 --batch_size 32 --arch resnet50: batch_size)
    known: model "resnet50": from a configuration`,
		},
		"a job script with several seeds": {
			map[string]string{"a/out.log": oneEpoch, "a/job.sh": "srun -n 4 python train.py --seed 3 --batch_size 32\nsrun -n 4 python train.py --seed 4 --batch_size 32\n"},
			[]string{"a/out.log 4 0 a configuration"},
			"!known: seed",
		},
		"the model of a command": {
			map[string]string{"out.log": "+ srun -n 8 python unet.py --arch=resnet50\n" + oneEpoch},
			[]string{"out.log 8 0 the command line"},
			`model "resnet50": from the command line (srun -n 8 python unet.py --arch=resnet50: arch)`,
		},
		"a job script and a configuration": {
			map[string]string{"out.log": oneEpoch, "job.sh": "srun -n 8 python train.py\n", "hparams.yaml": "world_size: 4\n"},
			[]string{"out.log 8 0 a configuration"},
			"a configuration (job.sh, line 1: srun -n 8 python train.py) states 8 workers, but a configuration (hparams.yaml: world_size) states 4; the first of them counts",
		},
		"the number of nodes in a command": { // once, although a flag states it too
			map[string]string{"out.log": "+ srun -n 8 --nodes=4 python unet.py\n" + oneEpoch, "hparams.yaml": "world_size: 8\nnum_nodes: 2\n"},
			[]string{"out.log 8 2 a configuration"},
			`states 2 nodes, but the command line (line 1: "srun -n 8 --nodes=4 python unet.py") states 4; a configuration counts`,
		},
		"a job script that was changed between jobs": {
			map[string]string{
				"1.out": "+ srun -n 1 python train.py\n" + oneEpoch, "2.out": "+ srun -n 2 python train.py\n" + oneEpoch, "3.out": worldOf(4, 5), "job.slurm": script,
			},
			[]string{"1.out 1 0 the command line", "2.out 2 0 the command line", "3.out 4 0 the content"},
			"the numbers of workers and nodes are not used: the runs in the folder state different numbers",
		},
		"a job script without the name of its output that was changed": {
			map[string]string{
				"1.out": "+ srun -n 1 python train.py\n" + oneEpoch, "2.out": "+ srun -n 2 python train.py\n" + oneEpoch,
				"job.slurm": "#SBATCH --ntasks=8 --nodes=2\nsrun python train.py\n",
			},
			[]string{"1.out 1 0 the command line", "2.out 2 0 the command line"},
			"the runs in the folder state different numbers",
		},
		"a configuration that was changed": {
			map[string]string{"1.out": "+ srun -n 1 python train.py\n" + oneEpoch, "2.out": "+ srun -n 2 python train.py\n" + oneEpoch, "hparams.yaml": "world_size: 4\n"},
			[]string{"1.out 1 0 the command line", "2.out 2 0 the command line"},
			"workers 4 is not used: the runs in its folder state different numbers",
		},
		"LightningCLI, auto": {
			map[string]string{"a/out.log": oneEpoch, "a/config.yaml": "trainer:\n  devices: auto\n  num_nodes: 2\n"},
			[]string{"a/out.log 0 2 "},
			"the number of workers is unknown",
		},
		"accelerate": {
			map[string]string{"a/out.log": oneEpoch, "a/default_config.yaml": "num_machines: 2\nnum_processes: 8\n"}, []string{"a/out.log 8 2 a configuration"}, "",
		},
		"a job script": {
			map[string]string{"a/out.log": oneEpoch, "a/job.slurm": script},
			[]string{"a/out.log 8 2 a configuration"},
			"workers 8: from a configuration (job.slurm, line 4: srun python train.py)",
		},
		"a job script and a folder": {
			map[string]string{"4GPU/out.log": oneEpoch, "4GPU/job.sh": script},
			[]string{"4GPU/out.log 8 2 a configuration"},
			`a configuration (job.sh, line 4: srun python train.py) states 8 workers, but the name of the folder "4GPU" states 4; a configuration counts`,
		},
		"a job script of another log": {
			map[string]string{"123.out": oneEpoch, "x_4gpu.log": oneEpoch, "y_2gpu.log": oneEpoch, "job.sh": script},
			[]string{"123.out 8 2 a configuration", "x_4gpu.log 4 0 the name of the file", "y_2gpu.log 2 0 the name of the file"},
			"a job script for 1 run in its folder",
		},
		"job scripts by name": {
			map[string]string{"a.out": oneEpoch, "b.out": oneEpoch, "a.sh": "srun -n 2 python x.py\n", "b.sh": "srun -n 4 python x.py\n"},
			[]string{"a.out 2 0 a configuration", "b.out 4 0 a configuration"},
			"",
		},
		"job scripts that differ": {
			map[string]string{"c.out": oneEpoch, "a.sh": "srun -n 2 python x.py\n", "b.sh": "srun -n 4 python x.py\n"},
			[]string{"c.out 0 0 "},
			"several job scripts state different numbers of workers, and it is unknown which of them wrote",
		},
		"a configuration of one of several runs": {
			map[string]string{"a_2gpu.log": oneEpoch, "a_4gpu.log": oneEpoch, "hparams.yaml": "world_size: 4\n"},
			[]string{"a_2gpu.log 2 0 the name of the file", "a_4gpu.log 4 0 the name of the file"},
			"workers 4 is not used: the runs in its folder state different numbers",
		},
		"the content": {
			map[string]string{"4GPU/out_2gpus.log": worldOf(16, 5), "4GPU/hparams.yaml": "world_size: 8\n"},
			[]string{"4GPU/out_2gpus.log 16 0 the content"},
			`the content states 16 workers, but a configuration (hparams.yaml: world_size) states 8, the name of the file "out_2gpus" states 2 and the name of the folder "4GPU" states 4; the content counts`,
		},
		"a folder and a file": {
			map[string]string{"4GPU/out_2gpus.log": oneEpoch},
			[]string{"4GPU/out_2gpus.log 4 0 the name of a folder"},
			`the name of the folder "4GPU" states 4 workers, but the name of the file "out_2gpus" states 2; the name of a folder counts`,
		},
		"a command": {
			map[string]string{"4GPU/out.log": "+ srun -n 8 python unet.py\n" + oneEpoch}, []string{"4GPU/out.log 8 0 the command line"}, `states 8 workers, but the name of the folder "4GPU" states 4`,
		},
		"a configuration and a command": {
			map[string]string{"out.log": "+ srun -n 8 python unet.py\n" + oneEpoch, "hparams.yaml": "world_size: 6\n"}, []string{"out.log 6 0 a configuration"}, "states 6 workers, but the command line",
		},
		"not the first command": {
			map[string]string{"out.log": "+ srun -n 1 python prepare.py --seed 3\n+ srun -n 8 -N 2 python unet.py --lr 0.1\n+ python unet.py --lr 0.1\n" + oneEpoch},
			[]string{"out.log 8 2 the command line"},
			`series "unet": from the command line (line 2: "srun -n 8 -N 2 python unet.py --lr 0.1")`,
		},
		"a command without a launcher after one": {
			map[string]string{"out.log": "+ srun -n 8 python prepare.py\n+ python unet.py\n" + oneEpoch}, []string{"out.log 0 0 "}, "the number of workers is unknown",
		},
		"a command of each node": { // the content has all nodes
			map[string]string{"out.log": "+ torchrun --nproc_per_node 4 unet.py\n" + worldOf(8, 5)}, []string{"out.log 8 1 the content"}, "!but the command line",
		},
	} {
		got, says := identities(t, c.files)
		unwanted, not := strings.CutPrefix(c.says, "!")
		if d := cmp.Diff(c.want, got); d != "" || strings.Contains(says, unwanted) == not {
			t.Errorf("%s (-want +got)\n%s%s\nwant %q", name, d, says, c.says)
		}
	}
}
