package cpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

func TestZZAB(t *testing.T) {
	which := os.Getenv("AB")
	if which == "" {
		t.Skip()
	}
	var net model.Network
	var err error
	batch := 8
	switch which {
	case "unet":
		net, err = model.UNet2D(model.UNet2DConfig{Base: 32, Depth: 4, InChannels: 1, OutChannels: 1, Height: 128, Width: 128, Norm: "batch"})
	case "resnet":
		batch = 32
		net, err = model.ResNetV2(model.ResNetConfig{Blocks: []int{3, 4, 6, 3}, Base: 64, Classes: 10, InChannels: 3, Height: 32, Width: 32, Stem: model.StemImageNet})
	}
	if err != nil {
		t.Fatal(err)
	}
	g, p := loweredNetwork(t, net, batch, nn.Train, plan.Options{Fuse: true})
	names := strings.Split(os.Getenv("SETS"), ",")
	if os.Getenv("SETS") == "" {
		names = []string{"avx2", "avx512"}
	}
	threads, _ := strconv.Atoi(os.Getenv("THREADS"))
	threads = max(1, threads)
	type side struct {
		e *Engine
		x engine.Executable
	}
	var sides []side
	for _, s := range names {
		t.Setenv(variable, s)
		o := engine.DefaultOptions()
		o.Threads = threads
		e, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		x := loaded(t, e, p, g)
		sides = append(sides, side{e.(*Engine), x})
	}
	reps := 12
	if r, _ := strconv.Atoi(os.Getenv("REPS")); r > 0 {
		reps = r
	}
	best := make([]map[string]float64, len(sides))
	step := make([]float64, len(sides))
	u := optim.Update{Rule: "adam", LearningRate: 1e-4, Step: 1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	dir := t.TempDir()
	for r := range reps {
		for i, s := range sides {
			if err := s.e.Profile(Profile{First: 1, Steps: 1, Trace: filepath.Join(dir, fmt.Sprintf("%d-%d.json", r, i))}); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if _, err := s.x.Step(context.Background(), nil, &u); err != nil {
				t.Fatal(err)
			}
			d := time.Since(begin).Seconds() * 1e3
			if best[i] == nil {
				best[i] = map[string]float64{}
				step[i] = 1e9
			}
			step[i] = min(step[i], d)
			for _, k := range s.e.KernelTimes() {
				n := fmt.Sprintf("%-22s %-24s %s", k.Kernel, k.Layer, k.Part)
				if v, ok := best[i][n]; !ok || k.Milliseconds < v {
					best[i][n] = k.Milliseconds
				}
			}
		}
	}
	var keys []string
	for k := range best[0] {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(a, b int) bool { return best[0][keys[a]] > best[0][keys[b]] })
	sum := make([]float64, len(sides))
	group := map[string][]float64{}
	for n, k := range keys {
		line := fmt.Sprintf("%-64s", k)
		f := strings.Fields(k)
		gk := f[0]
		if group[gk] == nil {
			group[gk] = make([]float64, len(sides))
		}
		for i := range sides {
			sum[i] += best[i][k]
			group[gk][i] += best[i][k]
			line += fmt.Sprintf(" %8.2f", best[i][k])
		}
		if n < 60 {
			fmt.Println(line, fmt.Sprintf("%6.2f", best[0][k]/best[len(sides)-1][k]))
		}
	}
	for k, v := range group {
		fmt.Println("GROUP", k, v)
	}
	fmt.Println("sum of minima", sum, "fastest step", step)
}
