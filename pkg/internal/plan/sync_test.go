package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// withoutSync is p as it would be without synchronised batch norms.
func withoutSync(p *plan.Program) *plan.Program {
	c := *p
	c.Kernels = append([]plan.Kernel(nil), p.Kernels...)
	for i := range c.Kernels {
		c.Kernels[i].Attr.Sync = false
	}
	return &c
}

// TestSyncBatchNorm: every training batch norm and its gradient are marked, and
// nothing else changes; a program for evaluation has nothing to exchange.
func TestSyncBatchNorm(t *testing.T) {
	for _, fuse := range []bool{true, false} {
		plain := lowered(t, small(), 2, nn.Train, plan.Options{Fuse: fuse})
		p := lowered(t, small(), 2, nn.Train, plan.Options{Fuse: fuse, SyncBatchNorm: true})
		if plain.HasSyncBatchNorm() || !p.HasSyncBatchNorm() {
			t.Errorf("fuse %v: synchronised is %v without the option, %v with it", fuse, plain.HasSyncBatchNorm(), p.HasSyncBatchNorm())
		}
		for _, k := range p.Kernels {
			if want := k.Op == plan.OpBatchNorm || k.Op == plan.OpBatchNormBackward; k.Attr.Sync != want {
				t.Errorf("fuse %v: kernel %s %s: sync is %v", fuse, k.Op, k.Name, k.Attr.Sync)
			}
		}
		if d := cmp.Diff(plain, withoutSync(p)); d != "" {
			t.Errorf("fuse %v: beside the marks the program changed:\n%s", fuse, d)
		}
		if line := strings.SplitN(p.String(), "\n", 3)[1]; !strings.Contains(line, "batch_norm(training, sync") {
			t.Errorf("the listing says %q", line)
		}
		m := mixed(t, p, device.F16)
		for _, k := range m.Kernels {
			if want := k.Op == plan.OpBatchNorm || k.Op == plan.OpBatchNormBackward; k.Attr.Sync != want {
				t.Errorf("fuse %v, fp16: kernel %s %s: sync is %v", fuse, k.Op, k.Name, k.Attr.Sync)
			}
		}
		eval := lowered(t, small(), 2, nn.Eval, plan.Options{Fuse: fuse, SyncBatchNorm: true})
		if eval.HasSyncBatchNorm() {
			t.Errorf("fuse %v: a program for evaluation exchanges statistics", fuse)
		}
	}
}

// TestRecomputeSyncBatchNorm: a batch norm that runs again takes what the first
// run saved, so that it exchanges nothing.
func TestRecomputeSyncBatchNorm(t *testing.T) {
	c := small()
	c.Depth, c.Height, c.Width = 2, 16, 16
	p := lowered(t, c, 2, nn.Train, plan.Options{Fuse: true, SyncBatchNorm: true})
	r := recomputed(t, p)
	saved := map[string][]int{} // layer → saved mean and 1/σ
	again := 0
	for _, k := range r.Kernels {
		switch {
		case k.Op != plan.OpBatchNorm:
		case !k.Recomputed:
			saved[k.Name] = k.Out[1:]
		default:
			again++
			if k.Attr.Sync || k.Attr.Training || !k.Attr.Saved || len(k.Out) != 1 {
				t.Errorf("%s runs again as %+v", k.Name, k)
			}
			if d := cmp.Diff(saved[k.Name], k.In[3:]); d != "" {
				t.Errorf("%s runs again with other statistics:\n%s", k.Name, d)
			}
		}
	}
	if again == 0 {
		t.Fatal("no batch norm runs again")
	}
	if !strings.Contains(r.String(), "batch_norm(saved, relu)") {
		t.Errorf("the listing does not say it:\n%s", r)
	}
	plain := recomputed(t, lowered(t, c, 2, nn.Train, plan.Options{Fuse: true}))
	if a, b := r.Memory().Activations, plain.Memory().Activations; a > b {
		t.Errorf("%d bytes of activations, %d where nothing is synchronised", a, b)
	}
}

func TestValidateSyncBatchNorm(t *testing.T) {
	for _, change := range []func(a *plan.KernelAttr){
		func(a *plan.KernelAttr) { a.Saved = true },
		func(a *plan.KernelAttr) { a.Training, a.Sync = false, true },
	} {
		p := lowered(t, small(), 2, nn.Train, plan.Options{})
		for i := range p.Kernels {
			if k := &p.Kernels[i]; k.Op == plan.OpBatchNorm {
				change(&k.Attr)
				if !k.Attr.Training {
					k.Out = k.Out[:1]
				}
				break
			}
		}
		if err := plan.Validate(p); err == nil {
			t.Error("a batch norm with attributes that exclude each other is valid")
		}
	}
}
