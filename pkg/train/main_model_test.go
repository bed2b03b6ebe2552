package train

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/runs"
)

// plain builds a small custom network for the masks of cells.
func plain(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node {
	x := g.ReLU(g.Conv("first", image, nn.Convolution{Out: 6, Kernel: []int{3}, Pad: []int{1}, Bias: true}))
	return g.Conv("last", x, nn.Convolution{Out: 1, Kernel: []int{1}, Bias: true})
}

// TestMain30Lines runs a program with a custom network as a worker. Its run folder can be
// verified without the program, because run.json contains the network.
func TestMain30Lines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "study", "own-n1-s1")
	cfg := tiny()
	cfg.Epochs = 1
	var out, errs bytes.Buffer
	if code := runMain([]string{"train", "--run", dir, "--set", "batch=3", "--seed", "2"}, cfg, plain, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	if !strings.Contains(out.String(), "tiny: 67 parameters, 1 worker × batch 3") { // 6·9+6 + 6+1
		t.Errorf("output: %s", &out)
	}
	run, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if m, _ := run.Info.Config["model"].(map[string]any); run.Info.Seed != 2 || m["kind"] != "spec" {
		t.Errorf("run.json has seed %d and model %v", run.Info.Seed, m)
	}
	checks, err := VerifyRun(context.Background(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if !c.OK {
			t.Error(c)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--sets", "x"}, 2, "flag provided but not defined: -sets"},
		{[]string{"more"}, 2, `unexpected argument "more"`},
		{[]string{"--set", "batch=0"}, 2, "batch is 0"},
		{[]string{"--config", "nothing"}, 2, `unknown config "nothing"`},
		{[]string{"--run", dir}, 1, "the folder already contains a run"},
	} {
		out.Reset()
		errs.Reset()
		if code := runMain(c.args, cfg, plain, &out, &errs); code != c.code || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: exit code %d, %s; want %d, %q", c.args, code, &errs, c.code, c.want)
		}
	}
	out.Reset()
	var v struct {
		BuildID string `json:"build_id"`
	}
	if code := runMain([]string{"version", "--json"}, cfg, plain, &out, &errs); code != 0 || json.Unmarshal(out.Bytes(), &v) != nil || v.BuildID == "" {
		t.Errorf("version: exit code %d, %s", code, &out)
	}
}

// TestReplicas: two replicas of a custom network reach the parameters of one replica with
// twice the batch, and a panic of the builder becomes an error.
func TestReplicas(t *testing.T) {
	cfg := exactConfig()
	cfg.Epochs = 2
	two, err := Replicas(t.Context(), cfg, plain, 2)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Batch *= 2
	one, err := Replicas(t.Context(), cfg, plain, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(two.Weights()) != 4 || len(two.Epochs) != 2 || two.Network.Task() != model.Segmentation {
		t.Fatalf("%d tensors, %d epochs", len(two.Weights()), len(two.Epochs))
	}
	for i, w := range two.Weights() {
		if d := distance(one.Weights()[i].Float64s(), w.Float64s()); !(d <= toleranceFloat64) {
			t.Errorf("%s differs by %g", w.Name, d)
		}
	}
	if text := fmt.Sprint(two); strings.Count(text, "epoch ") != 2 || !strings.Contains(text, "IoU ") || math.IsNaN(two.Test.IoU) {
		t.Errorf("it shows itself as %s", text)
	}
	_, err = Replicas(t.Context(), cfg, func(*nn.Graph, *gorgonia.Node) *gorgonia.Node { panic("no") }, 2)
	if err == nil || !strings.Contains(err.Error(), "the builder panicked: no") {
		t.Errorf("a builder that panics: %v", err)
	}
	if _, err := Replicas(t.Context(), cfg, plain, 0); err == nil || !strings.Contains(err.Error(), "use at least 1") {
		t.Errorf("no workers: %v", err)
	}
}
