package logread

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/runs"
)

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	check(t, err)
	_, err = f.WriteString(text)
	check(t, err)
	check(t, f.Close())
}

// following returns a Follower that polls without delay.
func following(t *testing.T, paths ...string) *Follower {
	t.Helper()
	f, err := Follow(t.Context(), paths...)
	check(t, err)
	f.Every = time.Millisecond
	return f
}

// asRead checks that the Follower has the same runs and reports as Read.
func asRead(t *testing.T, f *Follower, when, dir string) {
	t.Helper()
	found, problems, err := Read(dir)
	check(t, err)
	if d := cmp.Diff(found, f.Runs(), cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("%s (-Read +Follow)\n%s", when, d)
	}
	if d := cmp.Diff(problems, f.Logs().Problems, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("%s: problems (-Read +Follow)\n%s", when, d)
	}
}

// TestFollow compares the Follower with Read while each kind of file is
// created, appended to and replaced, and checks that each byte is read only
// once.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	header, row1, _ := strings.Cut(twoRows, "\n")
	row1, row2, _ := strings.Cut(row1, "\n")
	check(t, os.WriteFile(in("log_4.csv"), []byte(header+"\n"+row1+"\n"), 0o644))
	check(t, os.WriteFile(in("empty"), nil, 0o644))
	check(t, os.Symlink(in("log_4.csv"), in("link.csv")))
	check(t, os.Mkdir(in("2GPU"), 0o755))
	f := following(t, dir)
	next := func(when string) {
		t.Helper()
		if !f.Next() {
			t.Fatalf("%s: %v", when, f.Err())
		}
		asRead(t, f, when, dir)
	}
	next("at first")
	read := f.BytesRead()
	if want := int64(len(header) + len(row1) + 2); read != want {
		t.Errorf("%d bytes read, expected %d", read, want)
	}
	appended := func(when, path, text string) {
		t.Helper()
		appendTo(t, in(path), text)
		next(when)
		if got := f.BytesRead() - read; got != int64(len(text)) {
			t.Errorf("%s: %d bytes read, %d were appended", when, got, len(text))
		}
		read = f.BytesRead()
	}
	appended("a row more", "log_4.csv", row2)

	// An incomplete row is neither a row nor a problem.
	half := strings.Replace(row1, "0,", "2,", 1)
	appendTo(t, in("log_4.csv"), half[:20])
	if !f.Next() || len(f.Runs()[0].Epochs) != 2 || len(f.Logs().Problems) > 0 {
		t.Fatalf("half a row: %d epochs, %v", len(f.Runs()[0].Epochs), f.Logs().Problems)
	}
	read = f.BytesRead()
	appended("its rest", "log_4.csv", half[20:]+"\n")

	// Event files are read record by record; an incomplete record is not read yet.
	b := recordtest.EncodeEventFile(recordtest.EncodeEvent(1, 1, recordtest.EncodeScalar("a", 1)))
	appended("events", "2GPU/events.out.tfevents.1", string(b))
	more := recordtest.EncodeRecord(recordtest.EncodeEvent(2, 2, recordtest.EncodeScalar("a", 2)))
	appendTo(t, in("2GPU/events.out.tfevents.1"), string(more[:9]))
	if !f.Next() || len(f.Runs()[0].Curves[0].Steps) != 1 || len(f.Logs().Problems) > 0 {
		t.Fatalf("half a record: %+v, %v", f.Runs(), f.Logs().Problems)
	}
	kept := f.Runs()
	read = f.BytesRead()
	appended("its rest", "2GPU/events.out.tfevents.1", string(more[9:]))
	if len(kept[0].Curves[0].Steps) != 1 {
		t.Error("runs that were given out changed")
	}

	// A run folder.
	w, err := runs.Create(in("ddp-n2-s1"), runs.Info{Study: "s", Series: "ddp", Workers: 2, Seed: 1})
	check(t, err)
	next("a run folder")
	nan := math.NaN()
	check(t, w.AppendEpoch(runs.Epoch{Epoch: 1, Seconds: 1, ValLoss: nan, IoU: nan, Dice: nan, ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan}))
	next("an epoch")
	check(t, w.Finish(runs.StatusDone, nil))
	next("its end")

	// A JSON document without a line end; a file that was empty; a compressed file.
	check(t, os.WriteFile(in("rank0.json"), []byte(`[{"ph":"X","name":"compute","ts":1,"dur":1}]`), 0o644))
	next("a trace")
	check(t, os.WriteFile(in("empty"), []byte("nothing that is known"), 0o644))
	next("the empty file")
	var z bytes.Buffer
	gz := gzip.NewWriter(&z)
	_, err = gz.Write([]byte(twoRows))
	check(t, err)
	check(t, gz.Close())
	check(t, os.WriteFile(in("log_8.csv.gz"), z.Bytes(), 0o644))
	next("a compressed log")

	// Files that are rewritten, replaced and removed.
	check(t, os.WriteFile(in("log_4.csv"), []byte(strings.ReplaceAll(twoRows, "0.899849", "0.5")), 0o644))
	next("written anew")
	check(t, os.WriteFile(in("other"), []byte(strings.ReplaceAll(twoRows, "0.899849", "0.6")), 0o644))
	check(t, os.Rename(in("other"), in("log_4.csv")))
	next("replaced")
	check(t, os.Remove(in("log_4.csv")))
	check(t, os.RemoveAll(in("2GPU")))
	next("gone")
	read = f.BytesRead()
	if changed, err := f.poll(); changed || err != nil || f.BytesRead() != read {
		t.Errorf("nothing happened: changed %v, error %v, %d bytes read", changed, err, f.BytesRead()-read)
	}
}

// TestFollowLong checks that a text that is too long to keep in memory is read
// from the beginning each time.
func TestFollowLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log_2.csv")
	row := strings.Repeat(" ", 1000) + "\n" // 1001 bytes that are no row
	check(t, os.WriteFile(path, []byte(twoRows+strings.Repeat(row, files.MaxKeptTextBytes/1001)), 0o644))
	f := following(t, path)
	for i := range 3 {
		if !f.Next() {
			t.Fatal(f.Err())
		}
		file := f.files[path]
		if held := i < 1; (file.KeptBytes() > 0) != held {
			t.Fatalf("%d: %d bytes are held", i, file.KeptBytes())
		}
		asRead(t, f, fmt.Sprint(i), path)
		appendTo(t, path, row+row)
	}
}

func TestFollowEnds(t *testing.T) {
	if _, err := Follow(t.Context()); err == nil || !strings.Contains(err.Error(), "no path given") {
		t.Errorf("error %v", err)
	}
	if _, err := Follow(t.Context(), "/nowhere/at/all"); err == nil {
		t.Error("nothing to follow has no error")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	f, err := Follow(ctx, dir)
	check(t, err)
	if !f.Next() || len(f.Runs()) != 0 {
		t.Fatalf("an empty folder: %v", f.Err())
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	if f.Next() || f.Err() != nil {
		t.Errorf("after the end of the context: error %v", f.Err())
	}
	// A folder that was removed counts as empty, since it may come back.
	sub := filepath.Join(dir, "sub")
	check(t, os.Mkdir(sub, 0o755))
	write(t, sub, map[string]string{"log_1.csv": twoRows})
	f = following(t, sub)
	if !f.Next() || len(f.Runs()) != 1 {
		t.Fatal(f.Err())
	}
	check(t, os.Rename(sub, sub+"2"))
	if !f.Next() || len(f.Runs()) != 0 {
		t.Fatal(f.Err())
	}
	check(t, os.Rename(sub+"2", sub))
	if !f.Next() || len(f.Runs()) != 1 {
		t.Fatal(f.Err())
	}
}

// This program watches a run folder, in which the run is already complete.
// TestFollowLines: lines that a template describes have the same result when they are
// appended and when they are read at once.
func TestFollowLines(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.log")
	o := Options{Lines: []string{"world size {workers}", "Epoch {epoch}", "step {step} loss {train_loss}", "took {seconds}"}}
	check(t, os.WriteFile(path, []byte("hello\n"), 0o644))
	f, err := o.Follow(t.Context(), dir)
	check(t, err)
	f.Every = time.Millisecond
	for _, text := range []string{
		"", "world size 2\nEpoch 1\n", "step 1 loss 0.5\nstep 2 lo", "ss 0.4\ntook 1m", "s\n", "Epoch 2\nstep 1 loss 0.3\n", "took 3s\nEpoch 1\ntook 4s\n",
	} {
		appendTo(t, path, text)
		if !f.Next() {
			t.Fatalf("%q: %v", text, f.Err())
		}
	}
	logs, err := o.Read(t.Context(), dir)
	check(t, err)
	if d := cmp.Diff(logs.Runs, f.Runs(), cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("(-Read +Follow)\n%s", d)
	}
	if d := cmp.Diff(logs.Problems, f.Logs().Problems, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("problems (-Read +Follow)\n%s", d)
	}
	if len(logs.Runs) != 2 || len(logs.Runs[0].Epochs) != 2 || logs.Runs[0].Epochs[0].Seconds != 0.001 || logs.Runs[1].Info.Workers != 2 {
		t.Errorf("got %+v", logs.Runs)
	}
	if _, err := (Options{Lines: []string{"{"}}).Follow(t.Context(), dir); err == nil {
		t.Error("an invalid template is no error")
	}
}

func ExampleFollow() {
	dir, err := os.MkdirTemp("", "study")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "log_hvd_4.csv"), []byte(twoRows), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	f, err := Follow(ctx, dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	for f.Next() {
		for _, run := range f.Runs() {
			fmt.Println(run.Info.Series, run.Info.Workers, len(run.Epochs), "epochs")
		}
		stop()
	}
	fmt.Println(f.Err())
	// Output:
	// horovod 4 2 epochs
	// <nil>
}
