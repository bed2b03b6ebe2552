package scaling

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/runs"
)

// writeRun writes a run folder of three epochs with two steps per rank. Epoch 1 takes 9 s
// and does not count by the default rule; the other epochs take 2 s each. Every step of
// rank r has the times of span, but r/10 s less backward and r/10 s more wait.
func writeRun(t *testing.T, dir, name string, workers int, overlap bool, span runs.Step) {
	t.Helper()
	place := filepath.Join(dir, name)
	w, err := runs.Create(place, runs.Info{
		Study: "cells", Series: name[:strings.LastIndex(name, "-n")], Workers: workers, Seed: 1, Status: runs.StatusRunning, Started: time.Unix(0, 0),
		Config: map[string]any{"engine": map[string]any{"overlap": overlap}},
	})
	check(t, err)
	for rank := range workers {
		sw, err := runs.OpenSteps(place, rank, runs.Worker{Rank: rank, WorldSize: workers})
		check(t, err)
		for i := range 6 {
			s := span
			s.Step, s.Epoch, s.Samples = i+1, i/2+1, 4
			s.Wait += 0.1 * float64(rank)
			s.Backward -= 0.1 * float64(rank)
			if s.Epoch == 1 { // must not count
				s.Data, s.Wait = 100, 100
			}
			check(t, sw.AppendStep(s))
		}
		check(t, sw.Close())
	}
	for i, seconds := range []float64{9, 2, 2} {
		check(t, w.AppendEpoch(runs.Epoch{Epoch: i + 1, Seconds: seconds, Samples: 8 * workers}))
	}
	check(t, w.Finish(runs.StatusDone, nil))
}

func breakdownStudy(t *testing.T) *Study {
	t.Helper()
	dir := t.TempDir()
	writeRun(t, dir, "ddp-n2-s1", 2, true,
		runs.Step{Data: 0.1, Forward: 0.2, Backward: 0.3, Wait: 0.05, AllReduce: 0.25, Optimizer: 0.1})
	writeRun(t, dir, "ddp-n1-s1", 1, true,
		runs.Step{Data: 0.1, Forward: 0.2, Backward: 0.3, Optimizer: 0.1})
	writeRun(t, dir, "ddp-no-overlap-n2-s1", 2, false,
		runs.Step{Data: 0.1, Forward: 0.2, Backward: 0.25, Wait: 0.3, AllReduce: 0.3, Optimizer: 0.1})
	s, err := Read(dir)
	check(t, err)
	return s
}

func TestBreakdown(t *testing.T) {
	b := breakdownStudy(t).Breakdown()
	if len(b.Problems) > 0 {
		t.Error(b.Problems)
	}
	if len(b.Rows) != 3 {
		t.Fatalf("%d rows, want 3:\n%s", len(b.Rows), b)
	}
	// An epoch of 2 s has two steps of 1 s. The two ranks wait for 0.05 s and 0.15 s (mean
	// 0.1 s), and without overlap for 0.3 s and 0.4 s.
	for i, want := range []StepTime{
		{"ddp", 1, "on", 1, 4, 1, 0.1, 0.2, 0.3, 0, 0.1, 0.3, 0, 0, 0},
		{"ddp", 2, "on", 1, 8, 1, 0.1, 0.2, 0.25, 0.1, 0.1, 0.25, 0.25, 0.15, 0.1},
		{"ddp-no-overlap", 2, "off", 1, 8, 1, 0.1, 0.2, 0.2, 0.35, 0.1, 0.05, 0.3, 0, 0.35},
	} {
		got := b.Rows[i]
		if got.Series != want.Series || got.Workers != want.Workers || got.Overlap != want.Overlap || got.Runs != want.Runs || got.Steps != want.Steps {
			t.Errorf("row %d is %+v, want %+v", i, got, want)
		}
		for _, c := range stepTimeColumns() {
			near(t, fmt.Sprintf("%s of row %d", c.name, i), c.value(got), c.value(want))
		}
		near(t, "wait share", got.WaitShare, want.WaitShare)
	}
}

func TestBreakdownFormats(t *testing.T) {
	b := breakdownStudy(t).Breakdown()
	var table, text, doc bytes.Buffer
	check(t, b.Write(&table, FormatTable))
	wantLine(t, strings.Split(table.String(), "\n"), "series", "workers", "overlap", "step_ms", "wait_ms", "hidden_ms", "wait_share")
	wantLine(t, strings.Split(table.String(), "\n"), "ddp-no-overlap", "off", "1000", "350.0", "35.0%")
	wantLine(t, strings.Split(table.String(), "\n"), "rule:", "the first left out")
	check(t, b.Write(&text, FormatCSV))
	rows, err := csv.NewReader(&text).ReadAll()
	check(t, err)
	frame := b.Table()
	if got, want := strings.Join(rows[0], ","), strings.Join(frame.Names(), ","); got != want {
		t.Errorf("the CSV's columns are %s, the table's are %s", got, want)
	}
	if frame.Nrow() != 3 || len(rows) != 4 || rows[3][0] != "ddp-no-overlap" || rows[3][2] != "off" {
		t.Errorf("%d rows, CSV %v", frame.Nrow(), rows)
	}
	check(t, b.Write(&doc, FormatJSON))
	var objects []map[string]any
	check(t, json.Unmarshal(doc.Bytes(), &objects))
	for i, name := range rows[0] {
		if _, ok := objects[1][name]; !ok {
			t.Errorf("the JSON has no %s (column %d)", name, i)
		}
	}
	if !strings.Contains(b.HTML(), "<th>wait_<wbr>ms</th>") {
		t.Error(b.HTML())
	}
	err = b.Write(&doc, "xml")
	if err == nil || !strings.Contains(err.Error(), `unknown format "xml": use table, csv, json, markdown or latex`) {
		t.Error(err)
	}
}

// TestBreakdownNamesWhatIsMissing checks the problems for a rank without spans, for a torn
// line, and for runs without step files.
func TestBreakdownNamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	writeRun(t, dir, "ddp-n2-s1", 2, true, runs.Step{Forward: 0.5})
	check(t, os.Remove(filepath.Join(dir, "ddp-n2-s1", "steps-1.jsonl")))
	path := filepath.Join(dir, "ddp-n2-s1", "steps-0.jsonl")
	text, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(path, append(text, `{"epoch": 3, "st`...), 0o600))
	s, err := Read(dir)
	check(t, err)
	b := s.Breakdown()
	lines := strings.Split(b.String(), "\n")
	wantLine(t, lines, "problem:", "the spans of rank 1 do not count", "steps-1.jsonl")
	wantLine(t, lines, "problem:", "steps-0.jsonl:8") // a worker and six steps come before
	// The remaining rank counts alone: 1 s per step.
	if len(b.Rows) != 1 || b.Rows[0].Steps != 4 || b.Rows[0].Step != 1 || b.Rows[0].Forward != 0.5 {
		t.Errorf("rows %+v", b.Rows)
	}
	foreign, err := FromRuns([]runs.Run{weak(1, 1, 40, 10, 10)})
	check(t, err)
	err = foreign.Breakdown().Write(&bytes.Buffer{}, FormatTable)
	if err == nil || !strings.Contains(err.Error(), "ddp-n1-s1: the run has no step spans (steps-<rank>.jsonl); lockstep train writes them") {
		t.Errorf("error %v", err)
	}
}
