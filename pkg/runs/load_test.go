package runs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sampleLoad returns the load of an epoch of 2 s on 4 cores, which has 8 s of CPU time. Other
// processes used part of one core, and the hypervisor took part of the CPU time.
func sampleLoad(epoch int, cores, steal float64) Load {
	return Load{Epoch: epoch, Seconds: 2, Cores: 4, OwnSeconds: 1.75, OtherSeconds: 2 * cores, StealSeconds: 8 * steal}
}

func TestLoadReadsBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, sampleInfo())
	check(t, err)
	tail := NewTail(dir)
	for epoch, cores := range []float64{3, -0.01, 0.25} { // the first does not count
		check(t, w.AppendLoad(sampleLoad(epoch+1, cores, 0)))
		check(t, w.AppendEpoch(sampleEpoch(epoch+1)))
		_, err := tail.Read()
		check(t, err)
		run, err := Read(dir)
		check(t, err)
		equal(t, tail.Run(), run)
		equal(t, len(run.Loads), epoch+1)
		equal(t, run.Loads[epoch], sampleLoad(epoch+1, cores, 0))
	}
	check(t, w.Finish(StatusDone, nil))
	run, err := Read(dir)
	check(t, err)
	equal(t, run.Problems, []Problem(nil))
	equal(t, run.Info.Load, &LoadSummary{Epochs: 2, OtherCores: 0.12, Disturbed: true})

	// A kill tore the row of epoch 3, which is then trained again on an idle machine.
	path := filepath.Join(dir, loadFileName)
	text, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(path, text[:len(text)-3], 0o644))
	run, err = Read(dir)
	check(t, err)
	if len(run.Loads) != 2 || len(run.Problems) != 1 || run.Problems[0].Line != 4 {
		t.Errorf("loads %+v, problems %v", run.Loads, run.Problems)
	}
	w, _, err = Resume(dir)
	check(t, err)
	check(t, w.AppendLoad(sampleLoad(2, 0.5, 0)))
	check(t, w.AppendLoad(sampleLoad(2, 0.02, 0)))
	check(t, w.AppendLoad(sampleLoad(3, 0.02, 0)))
	check(t, w.Finish(StatusDone, nil))
	run, err = Read(dir)
	check(t, err)
	equal(t, run.Problems, []Problem(nil))
	equal(t, run.Info.Load, &LoadSummary{Epochs: 2, OtherCores: 0.02})
}

func TestLoadLinesThatCannotBeUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	writeSample(t, dir)
	path := filepath.Join(dir, loadFileName)
	check(t, os.WriteFile(path, []byte(loadFileHeader+"\n1,2,4,1,1,0\n2,2,4\n3,2,four,1,1,0\n"), 0o644))
	run, err := Read(dir)
	check(t, err)
	equal(t, len(run.Loads), 1)
	equal(t, run.Problems, []Problem{
		{path, 3, "expected 6 cells, got 3"}, {path, 4, `expected a number, got "four"`},
	})
	check(t, os.WriteFile(path, []byte("a,b\n1,2\n"), 0o644))
	run, err = Read(dir)
	check(t, err)
	if len(run.Loads) != 0 || len(run.Problems) != 1 || !strings.Contains(run.Problems[0].Reason, "expected the header") {
		t.Errorf("loads %+v, problems %v", run.Loads, run.Problems)
	}
}

// TestSummarizeLoad: more than 10 % of a core, or more than 2 % stolen, over all
// epochs that count together.
func TestSummarizeLoad(t *testing.T) {
	all := func(int) bool { return true }
	for name, c := range map[string]struct {
		loads  []Load
		counts func(int) bool
		known  bool
		want   bool
	}{
		"nothing known":       {nil, all, false, false},
		"idle":                {[]Load{sampleLoad(1, -0.01, 0)}, all, true, false},
		"just below":          {[]Load{sampleLoad(1, 0.099, 0.019)}, all, true, false},
		"other processes":     {[]Load{sampleLoad(1, 0.101, 0)}, all, true, true},
		"stolen":              {[]Load{sampleLoad(1, 0, 0.021)}, all, true, true},
		"one epoch of three":  {[]Load{sampleLoad(1, 0.2, 0), sampleLoad(2, 0, 0), sampleLoad(3, 0, 0)}, all, true, false},
		"that does not count": {[]Load{sampleLoad(1, 5, 0.5), sampleLoad(2, 0, 0)}, func(e int) bool { return e > 1 }, true, false},
		"too short":           {[]Load{{Epoch: 1, Seconds: 0.4, Cores: 4, OtherSeconds: 0.4}}, all, false, false},
		"none counts":         {[]Load{sampleLoad(1, 5, 0)}, func(int) bool { return false }, false, false},
	} {
		s, ok := SummarizeLoad(c.loads, c.counts)
		if ok != c.known || s.Disturbed != c.want {
			t.Errorf("%s: %+v, known %v; want disturbed %v, known %v", name, s, ok, c.want, c.known)
		}
	}
	s, _ := SummarizeLoad([]Load{sampleLoad(1, 0.5, 0.05)}, all)
	equal(t, s.String(), "other processes used 0.50 cores, and the hypervisor took 5.0 % of the CPU time")
}

// TestLoadOfAnotherProgram: its only epoch counts.
func TestLoadOfAnotherProgram(t *testing.T) {
	for _, command := range [][]string{nil, {"python", "train.py"}} {
		dir := filepath.Join(t.TempDir(), "run")
		info := sampleInfo()
		info.Command = command
		w, err := Create(dir, info)
		check(t, err)
		check(t, w.AppendLoad(sampleLoad(1, 0.25, 0)))
		check(t, w.Finish(StatusDone, nil))
		run, err := Read(dir)
		check(t, err)
		if known := run.Info.Load != nil; known != (command != nil) || known && !run.Info.Load.Disturbed {
			t.Errorf("command %q: load %+v", command, run.Info.Load)
		}
	}
}
