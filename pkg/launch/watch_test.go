package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/pkg/notebook"
)

// cell records the display of a cell: the last text of each display id.
type cell struct {
	mu     sync.Mutex
	places []string // ids, in the order in which they came
	text   map[string]string
}

func (c *cell) display(v any, id string, update bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == "" { // an output that is not replaced
		id = fmt.Sprint("output ", len(c.places)+1)
	}
	if _, known := c.text[id]; known != update {
		return fmt.Errorf("place %q: update is %v", id, update)
	}
	if !update {
		c.places = append(c.places, id)
	}
	c.text[id] = fmt.Sprint(v)
	return nil
}

// TestWatch watches a sweep in a cell: the table has a row per run, and the curve comes below
// it. Both are replaced in place.
func TestWatch(t *testing.T) {
	c := &cell{text: map[string]string{}}
	notebook.SetHook(notebook.Hook{Context: context.Background, Display: c.display})
	defer notebook.SetHook(notebook.Hook{})
	s, _ := own(t, "sums", 1, 2)
	j, err := Local(notebook.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Watch(notebook.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.places) != 3 {
		t.Fatalf("got %d displays, want the folder, a table and a curve: %v", len(c.places), c.text)
	}
	c.places = c.places[1:]
	// The worker's rows: loss 1/epoch, 20 samples/s, and the mean of rank+1 as IoU.
	table := c.text[c.places[0]]
	for _, want := range []string{
		`run +workers +state +epoch +samples/s +loss +IoU +elapsed\n`,
		`ddp-n1-s1 +1 +done +2 of 2 +20\.0 +0\.5000 +1\.0000`,
		`ddp-n2-s1 +2 +done +2 of 2 +20\.0 +0\.5000 +1\.5000`,
	} {
		if !regexp.MustCompile(want).MatchString(table) {
			t.Errorf("table is\n%s\nwant %q in it", table, want)
		}
	}
	curve := c.text[c.places[1]]
	for _, want := range []string{`(?m)^Speed-up$`, `runs +1 +20\.0 +1\.00 +100 %`, `runs +2 +20\.0 +1\.00 +50 %`} {
		if !regexp.MustCompile(want).MatchString(curve) {
			t.Errorf("curve is\n%s\nwant %q in it", curve, want)
		}
	}

	s, _ = own(t, "fails", 2)
	if j, err = Local(notebook.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := j.Watch(notebook.Context()); err == nil {
		t.Error("no error")
	}
	table = c.text[c.places[len(c.places)-1]]
	for _, want := range []string{`ddp-n2-s1 +2 +failed +1 of 2`, `(?m)^ddp-n2-s1: rank [01] ended with exit code 1`} { // rank 0, which loses rank 1, may end first
		if !regexp.MustCompile(want).MatchString(table) {
			t.Errorf("table is\n%s\nwant %q in it", table, want)
		}
	}
}

// TestWatchShowsTheSpeedupSoFar checks that the curve is marked while a run is in progress, and
// that it includes runs of earlier sweeps into the study.
func TestWatchShowsTheSpeedupSoFar(t *testing.T) {
	s, _ := own(t, "sums", 1)
	s.Study = "mixed"
	j, err := Local(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := waitFor(t, j); err != nil {
		t.Fatal(err)
	}
	s.Config, s.Workers, s.Epochs = "waits-third", []int{2}, 3
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if j, err = Local(ctx, s); err != nil {
		t.Fatal(err)
	}
	soon(t, "two epochs", func() bool { return j.Status()[0].Epoch == 2 })
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	short, stop := context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	wantError(t, j.WatchOn(short, w), "wait for mixed: context deadline exceeded; the sweep continues")
	_ = w.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ddp-n2-s1: running, epoch 2 of 3, 20.0 samples/s, loss 0.5000, IoU 1.5000", "Speed-up so far\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("Watch shows\n%s\nwant %q", text, want)
		}
	}
	if err := j.Cancel(); err != nil {
		t.Fatal(err)
	}
	if err := waitFor(t, j); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func attach(t *testing.T, s Sweep) *Job {
	t.Helper()
	j, err := Attach(filepath.Join(s.Logs, s.withDefaults().Study))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// soon polls until ok, for 20 seconds at most.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited 20 s for: %s", what)
}

func waitFor(t *testing.T, j *Job) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return j.Wait(ctx)
}

// TestWatchShowsNotes: notes of the runs and the cautions of the study are below the table, each once.
func TestWatchShowsNotes(t *testing.T) {
	c := &cell{text: map[string]string{}}
	notebook.SetHook(notebook.Hook{Context: context.Background, Display: c.display})
	defer notebook.SetHook(notebook.Hook{})
	s, _ := own(t, "dark", 1, 2)
	j, err := Local(notebook.Context(), s)
	if err == nil {
		err = j.Watch(notebook.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	table := c.text[c.places[1]]
	for _, want := range []string{"note: the images are dark", "caution: 2 workers shared 1 core; "} {
		if strings.Count(table, want) != 1 {
			t.Errorf("got table\n%s\nwant once %s", table, want)
		}
	}
}
