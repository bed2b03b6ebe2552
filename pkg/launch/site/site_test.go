package site

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/internal/strictyaml"
)

var update = flag.Bool("update", false, "write the golden files")

// answered returns the shipped profile with the given name, with an answer in place of each
// unknown value.
func answered(t *testing.T, name string) *Profile {
	t.Helper()
	text, err := Text(name)
	if err != nil {
		t.Fatal(err)
	}
	s := string(text)
	for key, answer := range map[string]string{
		"modules": "[CUDA/12, Python]", "partitions": "[gpus]", "account": "optional", "image": "registry/image:1",
		"mpi_command": "mpirun", "network_interface": "ib0", "scratch": "$SCRATCH/$USER", "cores_per_node": "48",
	} {
		s = strings.ReplaceAll(s, "\n"+key+": "+Unknown, "\n"+key+": "+answer)
	}
	p, err := Parse(name, []byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestShipped checks that each shipped profile is valid, and which
// keys a job cannot do without.
func TestShipped(t *testing.T) {
	want := map[string]string{ // what the published job scripts do not state
		"bsc-cte-power": "partitions account network_interface scratch", "generic": "", "local-test": "",
		"jsc-booster": "modules network_interface scratch", "nersc-perlmutter": "modules network_interface scratch",
		"rwth-claix-2018": "cores_per_node modules network_interface scratch",
	}
	if len(Names()) != len(want) {
		t.Errorf("got the profiles %v, want those of %v", Names(), want)
	}
	for _, name := range Names() {
		p, err := Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := strings.Join(p.Unknown(Job{}), " "); got != want[name] {
			t.Errorf("%s: unknown %q, want %q", name, got, want[name])
		}
	}
}

// TestScript compares the job scripts of all sites with golden files: 4 workers with a GPU each.
func TestScript(t *testing.T) {
	for _, name := range Names() {
		p := answered(t, name)
		perTask := 1
		if name == "bsc-cte-power" { // one task with all GPUs
			perTask = 4
		}
		comparePlaced(t, name, p, Job{
			Name: "unet-n4", Folder: "/home/ada/logs/unet", Account: "project1", Time: 90 * time.Minute,
			Command: []string{"lockstep", "train", "--config", "unet2d"},
		}, 4, perTask)
	}
}

// TestPublishedScripts compares scripts for the jobs of the studies and courses with golden files. The
// published job scripts of these jobs are the source of the profiles; see environment/sites/README.md.
func TestPublishedScripts(t *testing.T) {
	study := Job{Account: "project1", Command: []string{"python", "train.py"}}
	// The U-Net study: 1 worker is a plain start on 1 node, 14 workers are 2 tasks on each of 7 nodes.
	comparePlaced(t, "rwth-claix-2018-n1", answered(t, "rwth-claix-2018"), study, 1, 1)
	comparePlaced(t, "rwth-claix-2018-n14", answered(t, "rwth-claix-2018"), study, 14, 1)
	study.CPUsPerTask = 12
	comparePlaced(t, "generic-n14", answered(t, "generic"), study, 14, 1) // by srun
	// The hands-on: one process with 1 to 4 GPUs, and 40, 80, 120 and 160 CPUs.
	for gpus := 1; gpus <= 4; gpus++ {
		comparePlaced(t, fmt.Sprintf("bsc-cte-power-n%d", gpus), answered(t, "bsc-cte-power"), Job{
			Name: "ResNet50", Command: []string{"python", "ResNet50.py", "--n_gpus", strconv.Itoa(gpus)},
		}, gpus, gpus)
	}
	// The course at JSC: with one GPU 96 CPUs, and nodes with 4 tasks of 24 CPUs.
	course := Job{Account: "training1", Reservation: "course-day-1", Command: []string{"python3", "train.py"}}
	comparePlaced(t, "jsc-booster-n1", answered(t, "jsc-booster"), course, 1, 1)
	comparePlaced(t, "jsc-booster-n8", answered(t, "jsc-booster"), course, 8, 1)
	// The tutorial: nodes with 4 tasks of 32 CPUs, in a container. Its runs with different seeds are an array.
	tutorial := Job{Name: "sc21", Account: "project1", Array: "0-2", Command: []string{"python", "train.py"}}
	comparePlaced(t, "nersc-perlmutter-n16", answered(t, "nersc-perlmutter"), tutorial, 16, 1)
}

// comparePlaced compares the script of j for the given number of workers, with a GPU each, with a golden
// file. Check must find nothing wrong with the job.
func comparePlaced(t *testing.T, golden string, p *Profile, j Job, workers, workersPerTask int) {
	t.Helper()
	j, err := p.Place(j, workers, workersPerTask, 1)
	if err != nil {
		t.Fatal(err)
	}
	if found := p.Check(j, nil); len(found) > 0 {
		t.Errorf("%s: %v", golden, found)
	}
	compareGolden(t, golden, p, j)
}

// TestScriptOptions compares a script with the options that few jobs have.
func TestScriptOptions(t *testing.T) {
	compareGolden(t, "all-options", answered(t, "jsc-booster"), Job{
		Name: "sweep", Folder: "/home/ada/100% mine", Nodes: 3, Tasks: 10, TasksPerNode: 4, CPUsPerTask: 2, GPUsPerNode: 4, Time: 26*time.Hour + 500*time.Millisecond,
		Account: "project1", Partition: "develbooster", Reservation: "course-day-1", Dependency: "afterok:12:13", Array: "0-49%4",
		Output: "%A_%a.log", Signal: "USR1@120", Requeue: true, MPI: true,
		Environment: []string{"MESSAGE=it's $HOME", "EMPTY="}, Command: []string{"lockstep", "train", "a b"},
	})
}

// compareGolden compares the script of j with a golden file.
func compareGolden(t *testing.T, name string, p *Profile, j Job) {
	t.Helper()
	got, err := p.Script(j)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	file := filepath.Join("testdata", name+".sh")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// TestUnknownRefused checks that no script of a shipped profile contains the literal, and that the
// error names each key.
func TestUnknownRefused(t *testing.T) {
	for _, name := range Names() {
		p, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, mpi := range []bool{false, true} {
			j := Job{Command: []string{"true"}, MPI: mpi}
			script, err := p.Script(j)
			if strings.Contains(script, Unknown) {
				t.Errorf("%s: the script contains %s", name, Unknown)
			}
			keys := p.Unknown(j)
			if (err != nil) != (len(keys) > 0) {
				t.Errorf("%s: got error %v, unknown %v", name, err, keys)
			}
			for _, key := range keys {
				if err == nil || !strings.Contains(err.Error(), key) {
					t.Errorf("%s: error %v does not name %s", name, err, key)
				}
			}
		}
	}
	p, _ := Load("bsc-cte-power")
	if got := strings.Join(p.Unknown(Job{Partition: "p", Account: "a", MPI: true}), " "); got != "mpi_command network_interface scratch" {
		t.Errorf("a partition and an account of the job replace the profile's: unknown %q", got)
	}
}

// TestPlace compares with the rule of the U-Net study (1 worker: 1 task on 1 node; otherwise 2
// tasks on N/2 nodes) for the study's worker counts, and with the nodes of other sites.
func TestPlace(t *testing.T) {
	type size struct{ nodes, tasks, perNode, gpus int }
	for _, c := range []struct {
		site             string
		workers, perTask int
		want             size
	}{
		{"rwth-claix-2018", 1, 1, size{1, 1, 1, 1}},
		{"rwth-claix-2018", 2, 1, size{1, 2, 2, 2}},
		{"rwth-claix-2018", 4, 1, size{2, 4, 2, 2}},
		{"rwth-claix-2018", 6, 1, size{3, 6, 2, 2}},
		{"rwth-claix-2018", 8, 1, size{4, 8, 2, 2}},
		{"rwth-claix-2018", 10, 1, size{5, 10, 2, 2}},
		{"rwth-claix-2018", 12, 1, size{6, 12, 2, 2}},
		{"rwth-claix-2018", 14, 1, size{7, 14, 2, 2}},
		{"local-test", 4, 1, size{2, 4, 2, 2}},
		{"jsc-booster", 1, 1, size{1, 1, 1, 1}},
		{"jsc-booster", 6, 1, size{2, 6, 3, 3}},
		{"jsc-booster", 14, 1, size{4, 14, 4, 4}}, // 4, 4, 3 and 3 tasks
		{"jsc-booster", 16, 2, size{4, 8, 2, 4}},  // tasks of two workers
		{"bsc-cte-power", 4, 4, size{1, 1, 1, 4}},
		{"generic", 4, 1, size{2, 4, 2, 2}},
	} {
		p := answered(t, c.site)
		j, err := p.Place(Job{Account: "a", Command: []string{"true"}}, c.workers, c.perTask, 1)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := (size{j.Nodes, j.Tasks, j.TasksPerNode, j.GPUsPerNode}); got != c.want {
			t.Errorf("%s, %d workers: got %+v, want %+v", c.site, c.workers, got, c.want)
		}
		if problems := p.Check(j, nil); len(problems) > 0 {
			t.Errorf("%s, %d workers: %v", c.site, c.workers, problems)
		}
	}
	p := answered(t, "generic")
	for workers, want := range map[int]string{0: "use 1 to", -1: "use 1 to", 1 << 30: "use 1 to", 3: "use a multiple of 2"} {
		if _, err := p.Place(Job{}, workers, 2, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d workers: got error %v, want %q", workers, err, want)
		}
	}
	for _, gpus := range []int{-1, 1 << 30} {
		if _, err := p.Place(Job{}, 1, 1, gpus); err == nil || !strings.Contains(err.Error(), "use 0 to 1048576 GPUs per worker") {
			t.Errorf("%d GPUs: got error %v", gpus, err)
		}
	}
}

// TestPlaceProcesses places programs whose processes use several GPUs: as one worker with several GPUs, or
// as several workers in one process. Both get the CPUs for that number of GPUs by the site's rule: 12 per
// GPU at RWTH, 32 at NERSC, 40 at CTE-POWER, and all 96 cores of a node for one task at JSC.
func TestPlaceProcesses(t *testing.T) {
	type size struct{ nodes, perNode, gpusPerNode, cpusPerTask int }
	for _, c := range []struct {
		site                            string
		workers, perTask, gpusPerWorker int
		want                            size
	}{
		{"rwth-claix-2018", 2, 2, 1, size{1, 1, 2, 24}},
		{"rwth-claix-2018", 1, 1, 2, size{1, 1, 2, 24}},
		{"rwth-claix-2018", 3, 1, 2, size{3, 1, 2, 24}},
		{"rwth-claix-2018", 2, 1, 0, size{1, 2, 0, 12}},
		{"nersc-perlmutter", 4, 4, 1, size{1, 1, 4, 128}},
		{"nersc-perlmutter", 4, 1, 2, size{2, 2, 4, 64}},
		{"bsc-cte-power", 3, 3, 1, size{1, 1, 3, 120}},
		{"bsc-cte-power", 1, 1, 2, size{1, 1, 2, 80}},
		{"jsc-booster", 1, 1, 1, size{1, 1, 1, 96}},
		{"jsc-booster", 2, 2, 1, size{1, 1, 2, 96}},
		{"jsc-booster", 4, 4, 1, size{1, 1, 4, 96}},
		{"jsc-booster", 4, 1, 2, size{2, 2, 4, 48}},
		{"local-test", 4, 4, 0, size{1, 1, 0, 4}}, // strategy mirrored on CPUs
		{"generic", 8, 8, 1, size{1, 1, 8, 0}},
	} {
		p := answered(t, c.site)
		j, err := p.Place(Job{Account: "a", Command: []string{"true"}}, c.workers, c.perTask, c.gpusPerWorker)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := (size{j.Nodes, j.TasksPerNode, j.GPUsPerNode, p.Complete(j).CPUsPerTask}); got != c.want {
			t.Errorf("%+v: got %+v", c, got)
		}
		if problems := p.Check(j, nil); len(problems) > 0 {
			t.Errorf("%+v: %v", c, problems)
		}
		j.CPUsPerTask = 5
		if got := p.Complete(j).CPUsPerTask; got != 5 {
			t.Errorf("%+v: got %d CPUs per task, want the job's 5", c, got)
		}
	}
}

// TestGPUsByDefault: what Slurm reports takes precedence over the profile.
func TestGPUsByDefault(t *testing.T) {
	cluster := &Cluster{Partitions: []Partition{
		{Name: "booster", GPUsPerNode: 2}, {Name: "cpu", NoGPUs: true}, {Name: "unknown"}, {Name: "first", Default: true, GPUsPerNode: 8},
	}}
	noGPUs, err := Parse("my.yaml", []byte("start: srun\naccount: optional\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		site      *Profile
		partition string
		cluster   *Cluster
		want      bool
		reason    string
	}{
		{answered(t, "jsc-booster"), "", cluster, true, "partition booster has 2 GPUs per node"},
		{answered(t, "jsc-booster"), "", nil, true, "site jsc-booster has 4 GPUs per node by its profile"},
		{answered(t, "jsc-booster"), "unknown", cluster, true, "site jsc-booster has 4 GPUs per node by its profile"},
		{answered(t, "jsc-booster"), "cpu", cluster, false, "partition cpu has no GPUs"},
		{answered(t, "generic"), "", cluster, true, "partition first has 8 GPUs per node"},
		{answered(t, "generic"), "", nil, false, "it is not known whether site generic has GPUs"},
		{noGPUs, "", cluster, false, "site my.yaml has no GPUs by its profile (gpu_flag is empty)"},
	} {
		if got, reason := c.site.GPUsByDefault(c.partition, c.cluster); got != c.want || reason != c.reason {
			t.Errorf("%s, %q: got %v, %q, want %v, %q", c.site.Name, c.partition, got, reason, c.want, c.reason)
		}
	}
}

// TestWithoutUnknown: a script that is only shown has Slurm's usual flag in place of an unknown one.
func TestWithoutUnknown(t *testing.T) {
	p, err := Parse("my.yaml", []byte("start: ask-your-site\naccount: ask-your-site\ngpu_flag: ask-your-site\n"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.WithoutUnknown().Script(Job{GPUsPerNode: 2, Command: []string{"true"}})
	if err != nil || !strings.Contains(text, "#SBATCH --gres=gpu:2\n") || !strings.HasSuffix(text, "\nsrun true\n") {
		t.Errorf("got %s, %v", text, err)
	}
}

// TestLoadErrors checks the message for a site that does not exist and for invalid profiles: file,
// line, key.
func TestLoadErrors(t *testing.T) {
	for name, want := range map[string]string{
		"jsc-boster":   `unknown site "jsc-boster" (did you mean jsc-booster?)`,
		"nersc":        "did you mean nersc-perlmutter?",
		"nowhere":      "use one of bsc-cte-power, generic",
		"":             "use one of bsc-cte-power, generic",
		"../x":         "unknown site",
		"missing.yaml": "read site profile: open missing.yaml",
	} {
		if _, err := Load(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%q): got error %v, want %q", name, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                             "my.yaml: the file is empty",
		"start: srun\nacount: x":       `my.yaml: line 2: unknown key "acount" (did you mean account?): use one of description, source`,
		"start: srun\n":                "line 1: account: got \"\"",
		"start: srun\naccount: maybe":  `line 2: account: got "maybe"`,
		"account: optional":            "line 1: start: missing",
		"-: x":                         `line 1: unknown key "-"`,
		"gpus_per_node: many":          `line 1: gpus_per_node is "many": expected a whole number`,
		"gpus_per_node: -4":            `line 1: gpus_per_node is "-4"`,
		"gpus_per_node: 2.5":           `line 1: gpus_per_node is "2.5": expected a whole number`,
		"modules: cuda":                `line 1: modules is "cuda": expected a list`,
		"a: [":                         "my.yaml: yaml: line 1",
		"account: optional\n---\na: b": "line 2: unexpected second document",
		"start: a\naccount: optional\ngpu_flag: --gpus=N":                         `line 3: gpu_flag: got "--gpus=N", want --gres=gpu:N`,
		"start: a\naccount: optional\npartitions: [\"a b\"]":                      `line 3: partitions: got "a b": use letters`,
		"start: a\naccount: optional\nmodules: [\"\"]":                            `line 3: modules: got ""`,
		"start: \"a\\nb\"\naccount: optional":                                     `line 1: start: got "a\nb": use one line`,
		"start: a\naccount: optional\nexports: [A]":                               `line 3: exports: got "A", want NAME=VALUE`,
		"start: a\naccount: optional\nexports: ['A=\"']":                          "line 3: exports",
		"start: a\naccount: optional\nscratch: '\"'":                              "line 3: scratch",
		"start: a\naccount: optional\ndivide_cores: true":                         "line 3: divide_cores: cores_per_node is missing",
		"start: a\naccount: optional\ncpus_per_task: 1\ndivide_cores: true":       "line 4: divide_cores: cpus_per_task is also given",
		"start: a\naccount: optional\ncpus_by_gpus: [{gpus: 1, min: 80, max: 1}]": "line 3: cpus_by_gpus: entry 1",
	} {
		if _, err := Parse("my.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", text, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "my.yaml")
	if err := os.WriteFile(file, []byte("start: srun\naccount: optional\noutput: '%j.out'\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if p, err := Load(file); err != nil || p.Name != file {
		t.Errorf("a file: %v", err)
	}
}

// TestReadmeExplainsEachKey checks that the README of the profiles has each key and each shipped
// profile.
func TestReadmeExplainsEachKey(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "environment", "sites", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, keys := strictyaml.FieldTypes(reflect.TypeFor[Profile]())
	for _, name := range append(keys, Names()...) {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("environment/sites/README.md does not explain %s", name)
		}
	}
}
