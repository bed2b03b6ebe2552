package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programLine is the template of the lines that the programs in testdata/programs print.
const programLine = "Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec"

// findTorch returns the python3 that has PyTorch. It skips the test if there is none.
func findTorch(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", "import torch.distributed as d; raise SystemExit(not d.is_available())").Run() == nil {
			return python
		}
	}
	t.Skip("python3-torch is not installed")
	return ""
}

// epochOfProgram contains the numbers that a program has written to a separate file.
type epochOfProgram struct {
	workers, epoch      int
	seconds, rate, loss float64
}

// readProgramEpochs returns the epochs by worker count.
func readProgramEpochs(t *testing.T, path string) map[int][]epochOfProgram {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[int][]epochOfProgram{}
	for line := range strings.Lines(string(text)) {
		var e epochOfProgram
		if _, err := fmt.Sscan(line, &e.workers, &e.epoch, &e.seconds, &e.rate, &e.loss); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		found[e.workers] = append(found[e.workers], e)
	}
	return found
}

// TestProgramsWithLinesOfTheirOwn launches programs that print lines which no reader knows,
// with a template of these lines, and compares the table of lockstep scaling with the
// numbers that the programs wrote to a separate file.
func TestProgramsWithLinesOfTheirOwn(t *testing.T) {
	programs, err := filepath.Abs("testdata/programs")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string]func(t *testing.T) []string{
		"ddp":   func(t *testing.T) []string { return []string{findTorch(t), filepath.Join(programs, "ddp.py")} },
		"sleep": func(*testing.T) []string { return []string{"sh", filepath.Join(programs, "sleep.sh")} },
	} {
		t.Run(name, func(t *testing.T) {
			argv := command(t)
			p := newPlace(t)
			written := filepath.Join(p.dir, "written")
			var out bytes.Buffer
			args := append([]string{"launch", "--workers", "1,2", "--oversubscribe", "--line", programLine, "--"}, append(argv, written)...)
			if err := p.command(&out, args...).Run(); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			byWorkers := readProgramEpochs(t, written)
			if len(byWorkers[1]) != 3 || len(byWorkers[2]) != 3 {
				t.Fatalf("the program wrote %v\n%s", byWorkers, out.String())
			}
			// No option describes the lines: the study's folder has the template.
			for what, epochs := range p.readValues(name) {
				e := byWorkers[what.workers][what.epoch-1]
				for column, want := range map[string]float64{"seconds": e.seconds, "samples_per_second": e.rate, "train_loss": e.loss} {
					if got := epochs[column]; !(math.Abs(got-want) <= 1e-3*want+1e-6) {
						t.Errorf("%s of epoch %d with %d workers is %g, the program wrote %g", column, what.epoch, what.workers, got, want)
					}
				}
				if len(epochs) != 3 {
					t.Errorf("epoch %d with %d workers: %v", what.epoch, what.workers, epochs)
				}
			}
			points := p.readPoints(name)
			if len(points) != 2 {
				t.Fatalf("%d rows of scaling: %v", len(points), points)
			}
			rates := map[float64]float64{}
			for _, row := range points {
				var seconds, samples float64 // of the epochs that count: all but the first
				for _, e := range byWorkers[int(row["workers"])][1:] {
					seconds, samples = seconds+e.seconds, samples+e.rate*e.seconds
				}
				rates[row["workers"]] = samples / seconds
				for column, want := range map[string]float64{
					"epochs": 2, "epoch_seconds": seconds / 2, "throughput": samples / seconds, "speedup": samples / seconds / rates[1],
				} {
					if got, ok := row[column]; !ok || !(math.Abs(got-want) <= 1e-3*want) {
						t.Errorf("%s with %g workers is %g, want %g", column, row["workers"], got, want)
					}
				}
				if wall := row["wall_seconds"]; !(wall > seconds) {
					t.Errorf("%g workers: %g s of wall time for %g s of epochs", row["workers"], wall, seconds)
				}
			}
		})
	}
}

// epochKey identifies an epoch of a study.
type epochKey struct{ workers, epoch int }

// readValues returns the values of the epochs of a study, as lockstep read prints them.
func (p *place) readValues(study string) map[epochKey]map[string]float64 {
	p.t.Helper()
	var rows []struct {
		Workers, Epoch int
		Name           string
		Value          float64
	}
	p.readJSON(&rows, "read", study, "--format", "json")
	found := map[epochKey]map[string]float64{}
	for _, r := range rows {
		if r.Epoch == 0 { // of the complete run
			continue
		}
		k := epochKey{r.Workers, r.Epoch}
		if found[k] == nil {
			found[k] = map[string]float64{}
		}
		found[k][r.Name] = r.Value
	}
	if len(found) != 6 {
		p.t.Errorf("read %d epochs, want 6: %v", len(found), found)
	}
	return found
}

// readPoints returns the numbers in the rows of lockstep scaling.
func (p *place) readPoints(study string) []map[string]float64 {
	p.t.Helper()
	var rows []map[string]any
	p.readJSON(&rows, "scaling", study, "--format", "json")
	var points []map[string]float64
	for _, r := range rows {
		numbers := map[string]float64{}
		for name, v := range r {
			if v, ok := v.(float64); ok {
				numbers[name] = v
			}
		}
		points = append(points, numbers)
	}
	return points
}

// readJSON runs a lockstep command and decodes what it prints.
func (p *place) readJSON(into any, args ...string) {
	p.t.Helper()
	var out, messages bytes.Buffer
	c := p.command(&out, args...)
	c.Stderr = &messages
	if err := c.Run(); err != nil {
		p.t.Fatalf("lockstep %s: %v\n%s", strings.Join(args, " "), err, messages.String())
	}
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		p.t.Fatalf("lockstep %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
}
