package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/pkg/bench/internal/benchtest"
	"lockstep/pkg/train"
)

// tinyConfig writes a config whose epochs take milliseconds, and returns its path.
func tinyConfig(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/tiny.yaml"
	text := "name: tiny\nmodel: {kind: unet2d, base: 2, depth: 1}\ndata: {kind: cells, count: 10, height: 16, width: 16, test_images: 2}\nbatch: 2\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMeasureScaling checks the rows of two repeats more than a start has. Their numbers mean nothing.
func TestMeasureScaling(t *testing.T) {
	benchtest.UseTestBinaryAsWorker(t)
	var log bytes.Buffer
	got, err := MeasureScaling(t.Context(), ScalingOptions{Config: tinyConfig(t), Workers: []int{1, 2}, Repeats: scalingRepeatsPerStart + 1, Output: &log})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || !strings.Contains(got[0].Name, "weak scaling 1 → 2 workers") || !strings.Contains(got[1].Name, "2 runs of 1 worker side by side") {
		t.Fatalf("records: %+v", got)
	}
	for _, r := range got {
		if r.Repeats != scalingRepeatsPerStart+1 || !(r.Value > 0 && r.PeerValue > 0 && r.Ratio > 0) || r.Interval == nil || r.Peer != "1 worker" {
			t.Errorf("record %+v", r)
		}
	}
	if got[0].Target != weakScalingTargetSpeedup || got[1].Target != 0 {
		t.Errorf("targets %g and %g", got[0].Target, got[1].Target)
	}
	if n := strings.Count(log.String(), "after 6 repeats"); n != 3 {
		t.Errorf("log:\n%s", log.String())
	}
}

// TestMeasureFlood checks that the flooder connects to both ports, and that none of its connections is accepted.
func TestMeasureFlood(t *testing.T) {
	benchtest.UseTestBinaryAsWorker(t)
	got, err := MeasureFlood(t.Context(), FloodOptions{Config: tinyConfig(t), Workers: 2, Rate: 1000, Repeats: 2, Epochs: 20})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].Target != floodTargetRatio || got[0].Peer != "no flood" || got[2].Peer != "flood of another port" {
		t.Fatalf("records: %+v", got)
	}
	for _, r := range got {
		if r.Repeats != 2 || !(r.Value > 0 && r.PeerValue > 0) {
			t.Errorf("record %+v", r)
		}
	}
	for _, r := range got[:2] {
		if strings.Contains(r.Note, "(0 refused") || !strings.Contains(r.Note, "0 accepted, 0 let in") {
			t.Errorf("note of %s: %s", r.Name, r.Note)
		}
	}
}

// TestFloodKinds floods a port that accepts connections, greets, and answers the first line. It checks what
// each kind of stranger sends.
func TestFloodKinds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var noise, guesses atomic.Int64
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = fmt.Fprintln(c, `{"lockstep":3}`)
				text := make([]byte, 8)
				n, _ := c.Read(text)
				switch {
				case strings.HasPrefix(string(text[:n]), "xxx"):
					noise.Add(1)
				case strings.HasPrefix(string(text[:n]), "{"):
					guesses.Add(1)
					_, _ = fmt.Fprintln(c, `{"error":"wrong token"}`)
				}
			}()
		}
	}()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	var f floodStats
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		f.flood(ctx, l.Addr().String(), 1000)
	}()
	for ctx.Err() == nil && (noise.Load() == 0 || guesses.Load() == 0 || f.accepted.Load() < 6) {
		time.Sleep(time.Millisecond)
	}
	stop()
	<-flooded
	_ = l.Close()
	<-served
	if noise.Load() == 0 || guesses.Load() == 0 || f.admitted.Load() > 0 || f.seconds <= 0 {
		t.Errorf("%d sent noise, %d guessed; %s", noise.Load(), guesses.Load(), f.describe())
	}
}

// TestMediansOfStarts: worked out by hand.
func TestMediansOfStarts(t *testing.T) {
	if got := fmt.Sprint(mediansOfStarts([]float64{1, 9, 2, 5, 7, 6}, 3)); got != "[2 6]" {
		t.Errorf("medians %s, want [2 6]", got)
	}
}

// TestOverheadCases: the settings of all cases must be valid.
func TestOverheadCases(t *testing.T) {
	for _, set := range overheadCases() {
		if _, err := (train.Worker{Config: "unet2d-cells", Set: set}).Resolve(); err != nil {
			t.Error(err)
		}
	}
}

// TestEpochWorkerRefuses: another request than for an epoch ends the worker.
func TestEpochWorkerRefuses(t *testing.T) {
	err := RunWorker(t.Context(), WorkerOptions{Task: taskEpochs}, strings.NewReader("step\n"), &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), `unknown request "step", want epoch`) {
		t.Errorf("error %v", err)
	}
	if err := RunWorker(t.Context(), WorkerOptions{Task: taskEpochs}, strings.NewReader(""), &bytes.Buffer{}); err != nil {
		t.Errorf("without requests: %v", err)
	}
}

func TestInvalidEpochOptions(t *testing.T) {
	ctx := t.Context()
	_, scalingErr := MeasureScaling(ctx, ScalingOptions{Workers: []int{1, 0}, Repeats: 1})
	_, oneErr := MeasureScaling(ctx, ScalingOptions{Workers: []int{1}, Repeats: 1})
	for want, err := range map[string]error{
		"at least two worker counts":      oneErr,
		"got worker counts [1 0]":         scalingErr,
		"got 0 workers, 1 repeats":        OverheadOptions{Repeats: 1, Epochs: 1}.Validate(),
		"got 1 workers, want at least 2":  FloodOptions{Workers: 1, Rate: 1, Repeats: 1, Epochs: 1}.Validate(),
		"got 0 connections per second":    FloodOptions{Workers: 2, Repeats: 1, Epochs: 1}.Validate(),
		"got 0 repeats of 1 epochs, want": FloodOptions{Workers: 2, Rate: 1, Epochs: 1}.Validate(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := MeasureScaling(ctx, ScalingOptions{Workers: []int{1, 2}}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("no repeats: error %v", err)
	}
}
