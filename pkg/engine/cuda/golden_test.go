package cuda

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/strategy"
)

var update = flag.Bool("update", false, "write golden files anew")

// TestCalls compares what the engine asks of CUDA, cuDNN and NCCL with files that
// were read and found right: the second step, which is recorded, and the third,
// which is one launch.
func TestCalls(t *testing.T) {
	net := model.UNet2DConfig{Base: 8, Depth: 1, InChannels: 1, OutChannels: 1, Height: 8, Width: 8, Norm: "batch"}
	for _, c := range []struct {
		name, precision string
		sync            string // "", "host" or "nccl"; "resident": none, and the data on the GPU
		norms           bool   // synchronised batch norms
	}{
		{"fp32", "fp32", "", false},
		{"resident", "bf16", "resident", false},
		{"fp16", "fp16", "", false},
		{"bf16-nccl", "bf16", "nccl", false},
		{"bf16-host", "bf16", "host", false},
		{"norms-nccl", "fp16", "nccl", true},
		{"norms-host", "bf16", "host", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := clibtest.New(clibtest.Options{}) // kernels that do nothing: the calls count
			e := openOn(t, m, tunedOptions(c.precision))
			_, p := programOf(t, net, 2, nn.Train, plan.Options{Fuse: true, FirstBucketBytes: 8192, BucketBytes: 8192, SyncBatchNorm: c.norms})
			loaded, err := e.Load(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			x, ok := loaded.(*executable)
			if !ok {
				t.Fatalf("loaded a %T", loaded)
			}
			if c.sync == "resident" {
				if err := x.loadDatasetToGPU(model.ImageInput, model.TargetInput, drawnSet(4, 1, 8, 8).resident(5)); err != nil {
					t.Fatal(err)
				}
			}
			for name, b := range map[string]memoryBlock{
				"arena": x.memory.arena, "inputs": x.memory.fixed, "gradients": x.memory.grads, "scratch": x.memory.scratch, "workspace": x.memory.workspace,
				"control": x.memory.control, "backup": x.memory.backup, "staging": x.memory.staging,
				"images": x.data.images, "masks": x.data.targets, "samples": x.data.samples, "statistics": x.exchange.norms.vector, "sums": x.exchange.norms.partial, "weights": x.store.masters, "low weights": x.store.copies, "states": x.store.states,
			} {
				if b.ptr != 0 {
					m.SetAllocationName(b.ptr, name)
				}
			}
			var sync engine.GradSync
			group := collective.Single()
			switch c.sync {
			case "nccl":
				s, err := strategy.NewNCCL(context.Background(), e.Accelerator(), group, strategy.NCCLOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := errors.Join(x.Close(), s.Close()); err != nil {
						t.Error(err)
					}
				}()
				sync = s
			case "host":
				sync = quietSync{}
				if c.norms {
					sync = &sharing{ranks: 2}
				}
			}
			step := func(i int) {
				if c.sync == "resident" {
					if err := x.selectSamples(i, []int{i % 4, 1}); err != nil {
						t.Fatal(err)
					}
				} else {
					feed(t, x, 1)
				}
				if _, err := x.Step(context.Background(), sync, adam(i)); err != nil {
					t.Fatal(err)
				}
			}
			step(1)
			m.ResetCalls()
			step(2)
			recorded := m.Calls()
			m.ResetCalls()
			step(3)
			got := strings.Join(recorded, "\n") + "\n\nand the next step\n\n" + strings.Join(m.Calls(), "\n") + "\n"
			golden := filepath.Join("testdata", "calls-"+c.name+".txt")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("calls differ from %s (-want +got):\n%s", golden, d)
			}
		})
	}
}
