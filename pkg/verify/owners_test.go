package verify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/runs"
	"lockstep/pkg/train"
	"lockstep/pkg/train/traintest"
)

// writeSteps writes the step file of rank 0, with one part per process.
func writeSteps(t *testing.T, dir string, parts ...runs.StepPart) {
	t.Helper()
	var text []byte
	add := func(v any) {
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	for _, p := range parts {
		add(p.Worker)
		for _, s := range p.Steps {
			add(s)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "steps-0.jsonl"), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyOwners checks run folders in which two processes trained, or whose records
// contradict each other.
func TestVerifyOwners(t *testing.T) {
	cfg := traintest.Config() // 17 training samples in batches of 2: 9 steps each of 3 epochs
	dir := filepath.Join(t.TempDir(), "run")
	trainAll(t, cfg, 1, train.WorkerOptions{Dir: dir})
	requireVerified(t, dir)
	parts, _, err := runs.ReadStepParts(dir, 0)
	if err != nil || len(parts) != 1 || len(parts[0].Steps) != 27 {
		t.Fatalf("parts %+v, %v", parts, err)
	}
	owners, _, err := runs.Owners(dir)
	if err != nil || len(owners) != 1 {
		t.Fatalf("owners %+v, %v", owners, err)
	}
	all, self, me := parts[0].Steps, parts[0].Worker, owners[0]
	worker := func(pid, from int) runs.Worker {
		w := self
		w.PID, w.FromStep, w.Started = pid, from, me.Started.Add(time.Duration(pid-1)*time.Second)
		return w
	}
	owner := func(pid int, from, to time.Duration) runs.Owner {
		o := me
		o.PID, o.Started, o.Heartbeat = pid, me.Started.Add(from), me.Started.Add(to)
		return o
	}
	part := func(w runs.Worker, steps ...[]runs.Step) runs.StepPart {
		return runs.StepPart{Worker: w, Steps: slices.Concat(steps...)}
	}
	const order, alone = "each step follows the one before it or is replayed from a checkpoint", "one process at a time owned the run"
	elsewhere := owner(2, time.Second, time.Hour)
	elsewhere.BootID = "another"
	for _, c := range []struct {
		name   string
		parts  []runs.StepPart
		owners []runs.Owner // nil: as of a version that kept no record
		fails  string       // empty: nothing
		says   string
	}{
		{
			"resumed from the checkpoint of epoch 2",
			[]runs.StepPart{part(worker(1, 0), all[:22]), part(worker(2, 18), all[18:])},
			[]runs.Owner{owner(1, 0, time.Second), owner(2, time.Second, 3*time.Second)},
			"", "",
		},
		{
			"resumed by another machine whose clock is 20 s behind",
			[]runs.StepPart{part(worker(1, 0), all[:22]), part(worker(2, 18), all[18:])},
			[]runs.Owner{owner(1, 0, 21*time.Second), elsewhere},
			"", "",
		},
		{"resumed, without owners", []runs.StepPart{part(worker(1, 0), all[:22]), part(worker(2, 0), all[18:])}, nil, "", ""},
		{
			"begun anew before there was a checkpoint",
			[]runs.StepPart{part(worker(1, 0), all[:5]), part(worker(2, 0), all)},
			[]runs.Owner{owner(1, 0, time.Second), owner(2, time.Second, 3*time.Second)},
			"", "",
		},
		{
			"two trainings, without owners",
			[]runs.StepPart{part(worker(1, 0), all[:18]), part(worker(2, 0), all[9:18], all[18:27], all[18:27])},
			nil, order, "rank 0, pid 2 on " + self.Host + ": step 27 is followed by step 19, as if two processes had written the file",
		},
		{
			"two trainings",
			[]runs.StepPart{part(worker(1, 0), all[:9]), part(worker(2, 0), all[9:18], all[:9], all[18:], all[9:])},
			[]runs.Owner{owner(1, 0, time.Second), owner(2, time.Second, time.Hour)},
			order, "pid 2 on " + self.Host + ": step 18 is followed by step 1",
		},
		{
			"not from its checkpoint",
			[]runs.StepPart{part(worker(1, 0), all[:22]), part(worker(2, 9), all[18:])},
			[]runs.Owner{owner(1, 0, time.Second), owner(2, time.Second, 3*time.Second)},
			order, "pid 2 on " + self.Host + ": began with step 19, but its checkpoint is of step 9",
		},
		{
			"without owning it",
			[]runs.StepPart{part(worker(1, 0), all[:22]), part(worker(3, 18), all[18:])},
			[]runs.Owner{owner(1, 0, time.Second), owner(2, time.Second, 3*time.Second)},
			order, "pid 3 on " + self.Host + ": trained without owning the run",
		},
		{
			"owners at the same time",
			[]runs.StepPart{part(worker(1, 0), all[:22]), part(worker(2, 18), all[18:])},
			[]runs.Owner{owner(1, 0, 10*time.Second), owner(2, time.Second, 3*time.Second)},
			alone, "pid 2 on " + self.Host + " owned it from ",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			writeSteps(t, dir, c.parts...)
			var text []byte
			for _, o := range c.owners {
				line, err := json.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				text = append(append(text, line...), '\n')
			}
			path := filepath.Join(dir, runs.OwnersFile)
			err := os.WriteFile(path, text, 0o644)
			if c.owners == nil {
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			but := []string{c.fails}
			if c.fails == order { // the readers name such lines too
				but = append(but, "every line of the folder can be read")
			}
			requireVerified(t, dir, but...)
			checks, err := Run(t.Context(), dir, RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(checks, func(k Check) bool { return k.Name == c.fails })
			if c.fails != "" && (i < 0 || checks[i].OK || !strings.Contains(checks[i].Detail, c.says)) {
				t.Errorf("%q did not fail with %q: %+v", c.fails, c.says, checks)
			}
		})
	}
}
