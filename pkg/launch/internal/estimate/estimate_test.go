package estimate

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"lockstep/pkg/runs"
)

// TestEnd: each finished epoch took 10 s, of which 2 s were the evaluation.
func TestEnd(t *testing.T) {
	last := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	done := []runs.Epoch{{Seconds: 6, ValSeconds: 2}, {Seconds: 12, ValSeconds: math.NaN()}}
	for _, tt := range []struct {
		name  string
		done  []runs.Epoch
		total int
		now   time.Duration // after the last epoch
		want  time.Duration // after the last epoch; -1: unknown
	}{
		{"in time", done, 5, 4 * time.Second, 30 * time.Second},
		{"late", done, 5, 14 * time.Second, 34 * time.Second},
		{"stalled", done, 5, 101 * time.Second, -1},
		{"short epochs", []runs.Epoch{{Seconds: 0.1}}, 3, 20 * time.Second, 20100 * time.Millisecond},
		{"after the last epoch", done, 2, 3 * time.Second, 3 * time.Second},
		{"no epoch", nil, 5, 0, -1},
		{"unknown number", done, 0, 0, -1},
		{"too many epochs", done, 1, 0, -1},
	} {
		want := last.Add(tt.want)
		if tt.want < 0 {
			want = time.Time{}
		}
		if got := endTimeAt(last.Add(tt.now), tt.done, tt.total, last); !got.Equal(want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, want)
		}
	}
}

// TestReadFinishedLeavesOutOtherMachines: the times of a run that was recorded elsewhere say nothing about this machine.
func TestReadFinishedLeavesOutOtherMachines(t *testing.T) {
	logs := t.TempDir()
	for study, source := range map[string]string{"ours": "", "recorded": "recorded on 2026-11-29, 2 cores of AMD EPYC"} {
		w, err := runs.Create(filepath.Join(logs, study, "ddp-n1-s1"), runs.Info{Study: study, Workers: 1, WallSeconds: 10, Source: source})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Finish(runs.StatusDone, nil); err != nil {
			t.Fatal(err)
		}
	}
	if all := ReadFinishedRuns(filepath.Join(logs, "new")); len(all) != 1 || all[0].info.Study != "ours" {
		t.Errorf("got %+v, want the run of this machine", all)
	}
}
