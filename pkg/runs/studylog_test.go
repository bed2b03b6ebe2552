package runs

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWriteStudyLog: the file has the study's form (a nameless index, %.6f, the
// run's own numbers on each row), and never replaces that of another run.
func TestWriteStudyLog(t *testing.T) {
	root := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	made := func(name string, info Info) string {
		dir := filepath.Join(root, name)
		w, err := Create(dir, info)
		must(err)
		nan := math.NaN()
		for e := 1; e <= 2; e++ {
			must(w.AppendEpoch(Epoch{
				Epoch: e, Seconds: 1.25 * float64(e), TrainLoss: nan, LearningRate: 0.001,
				ValLoss: nan, IoU: nan, Dice: nan, ValSeconds: nan, Accuracy: nan, ValAccuracy: nan,
			}))
		}
		if info.Seed == 1 {
			must(w.UpdateInfo(func(i *Info) { i.Test = &Test{IoU: 0.899849, Seconds: 29.629347} }))
		}
		must(w.Finish(StatusDone, nil))
		return dir
	}
	writeLog := func(out, dir string) (string, error) {
		run, err := Read(dir)
		must(err)
		return WriteStudyLog(out, run)
	}
	first := made("ddp-n2-s1", Info{Series: "ddp", Workers: 2, Seed: 1})
	out := filepath.Join(root, "copies")
	for range 2 { // the same run again
		file, err := writeLog(out, first)
		must(err)
		text, err := os.ReadFile(file)
		must(err)
		want := ",time_per_epoch,loss,lr,training_time,test_time,iou\n" +
			"0,1.250000,,0.001000,3.750000,29.629347,0.899849\n1,2.500000,,0.001000,3.750000,29.629347,0.899849\n"
		if filepath.Base(file) != "log_2.csv" || string(text) != want {
			t.Errorf("%s:\n%s", file, text)
		}
		if dir, ok := StudyLogSource(file); !ok || dir != first {
			t.Errorf("the file is a copy of %q, want %q", dir, first)
		}
	}
	other := made("other-n2-s2", Info{Series: "other", Workers: 2, Seed: 2})
	before, err := os.ReadFile(filepath.Join(out, "log_2.csv"))
	must(err)
	if _, err := writeLog(out, other); err == nil || !strings.Contains(err.Error(), "log_2.csv exists and was not written from the run") {
		t.Errorf("error %v, expected a refusal", err)
	}
	if after, err := os.ReadFile(filepath.Join(out, "log_2.csv")); err != nil || string(after) != string(before) {
		t.Errorf("the other run's file was changed (%v)", err)
	}
	must(os.WriteFile(filepath.Join(root, "log_2.csv"), []byte("somebody's"), 0o644))
	if _, err := writeLog(root, first); err == nil {
		t.Error("a file of nobody known was replaced")
	}
	if name := StudyLogName(Info{Series: "horovod", Workers: 12}); name != "log_hvd_12.csv" {
		t.Error(name)
	}
	if _, ok := StudyLogSource(filepath.Join(root, "log_2.csv")); ok {
		t.Error("a file of nobody known has a source")
	}
}
