package runs

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func appendText(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	check(t, err)
	_, err = f.WriteString(text)
	check(t, err)
	check(t, f.Close())
}

// TestGrowing: only appended bytes are read; a file that was replaced is read from its start.
func TestGrowing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	g := NewGrowingFile(path)
	if _, err := g.Open(); !os.IsNotExist(err) {
		t.Fatalf("error %v", err)
	}
	long := strings.Repeat("0123456789\n", 1000)
	clock := time.Now().Add(-time.Hour)
	for i, c := range []struct {
		do   func()
		want string // "" and not anew: nothing
		anew bool
	}{
		{func() { appendText(t, path, "one\n") }, "one\n", true},
		{func() {}, "", false},
		{func() { appendText(t, path, "two\nthr") }, "two\nthr", false},
		{func() { appendText(t, path, "ee\n"+long) }, "ee\n" + long, false},
		{func() { appendText(t, path, "x") }, "x", false},
		{func() { check(t, os.WriteFile(path, []byte("short\n"), 0o644)) }, "short\n", true}, // truncated
		{func() { check(t, os.WriteFile(path, []byte("other and longer\n"), 0o644)) }, "other and longer\n", true},
		{func() { check(t, os.WriteFile(path, []byte("other, and longer, and more\n"), 0o644)) }, "other, and longer, and more\n", true},
		{func() { // another file of the same beginning
			check(t, os.WriteFile(path+".new", []byte("other, and longer, and more\nand more\n"), 0o644))
			check(t, os.Rename(path+".new", path))
		}, "other, and longer, and more\nand more\n", true},
		{func() { // in place, of the same length
			check(t, os.WriteFile(path, []byte("OTHER, and longer, and more\nand more\n"), 0o644))
			clock = clock.Add(time.Second)
			check(t, os.Chtimes(path, clock, clock))
		}, "OTHER, and longer, and more\nand more\n", true},
		{func() { check(t, os.WriteFile(path, nil, 0o644)) }, "", true},
		{func() { appendText(t, path, "again") }, "again", false},
	} {
		c.do()
		before := g.BytesRead()
		a, err := g.Open()
		check(t, err)
		if a == nil {
			if c.want != "" || c.anew {
				t.Fatalf("%d: nothing, expected %q", i, c.want)
			}
			continue
		}
		got, err := io.ReadAll(a)
		check(t, err)
		check(t, a.Close())
		if string(got) != c.want || a.Restarted != c.anew || g.BytesRead()-before != int64(len(c.want)) {
			t.Fatalf("%d: %.40q, anew %v, %d bytes; expected %.40q, %v", i, got, a.Restarted, g.BytesRead()-before, c.want, c.anew)
		}
	}
}

// TestTail: at each moment of a run, Tail returns the same as Read, and has read each byte
// once.
func TestTail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ddp-n2-s1")
	tail := NewTail(dir)
	if _, err := tail.Read(); err == nil {
		t.Fatal("a folder that is not there has no error")
	}
	w, err := Create(dir, Info{Study: "s", Series: "ddp", Workers: 2, Seed: 1})
	check(t, err)
	same := func(when string, changes bool) {
		t.Helper()
		changed, err := tail.Read()
		check(t, err)
		if changed != changes {
			t.Fatalf("%s: changed %v", when, changed)
		}
		want, err := Read(dir)
		check(t, err)
		if d := cmp.Diff(want, tail.Run(), cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%s (-Read +Tail)\n%s", when, d)
		}
	}
	same("created", true)
	same("nothing new", false)
	steps := map[int]*StepWriter{}
	nan := math.NaN()
	row := func(n int) Epoch {
		return Epoch{Epoch: n, Seconds: 1, TrainLoss: float64(n), ValLoss: nan, IoU: nan, Dice: nan, ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan}
	}
	for n := 1; n <= 4; n++ {
		for rank := range 2 {
			if steps[rank] == nil {
				steps[rank], err = OpenSteps(dir, rank, Worker{Rank: rank, WorldSize: 2})
				check(t, err)
			}
			check(t, steps[rank].AppendStep(Step{Epoch: n, Step: n}))
		}
		check(t, w.AppendEpoch(row(n)))
		same(fmt.Sprint("epoch ", n), true)
	}
	for rank := range 2 {
		check(t, steps[rank].Close())
	}
	check(t, w.TruncateAfter(2))
	same("truncated", true)
	check(t, w.AppendEpoch(row(3)))
	same("epoch 3 again", true)

	path := filepath.Join(dir, "epochs.csv")
	appendText(t, path, "not a row\n4,1,")
	changed, err := tail.Read()
	check(t, err)
	if run := tail.Run(); !changed || len(run.Epochs) != 3 || len(run.Problems) != 1 {
		t.Fatalf("half a row: changed %v, %d epochs, %v", changed, len(run.Epochs), run.Problems)
	}
	appendText(t, path, "0,0,0,0.5,,,,,,,\n")
	same("its rest", true)
	check(t, w.Finish(StatusDone, nil))
	same("finished", true)

	// Everything was read once, epochs.csv once more after it was truncated,
	// and run.json each time it was written.
	var size int64
	for _, name := range []string{"steps-0.jsonl", "steps-1.jsonl"} {
		info, err := os.Stat(filepath.Join(dir, name))
		check(t, err)
		size += info.Size()
	}
	var got int64
	for _, s := range tail.steps {
		got += s.file.growing.BytesRead()
	}
	if got != size || tail.BytesRead() <= got {
		t.Errorf("%d bytes of steps read, the files have %d", got, size)
	}
}

// TestTailForeign: no row of a file with another header is used, however it grows.
func TestTailForeign(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(filepath.Join(dir, "a"), Info{})
	check(t, err)
	path := filepath.Join(dir, "a", "epochs.csv")
	check(t, os.WriteFile(path, []byte("a,b\n1,2\n"), 0o644))
	tail := NewTail(filepath.Join(dir, "a"))
	_, err = tail.Read()
	check(t, err)
	appendText(t, path, "3,4\n")
	_, err = tail.Read()
	check(t, err)
	if run := tail.Run(); len(run.Epochs) > 0 || len(run.Problems) != 1 {
		t.Errorf("%d epochs, %v", len(run.Epochs), run.Problems)
	}
	check(t, w.Finish(StatusDone, nil))
}
