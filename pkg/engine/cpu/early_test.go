package cpu

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// noExchange is a GradSync that changes nothing. Weights are then not updated early.
type noExchange struct{}

func (noExchange) ReduceBucket(int, device.Buffer, device.Stream) error { return nil }
func (noExchange) Wait() error                                          { return nil }
func (noExchange) Capabilities() engine.SyncCapabilities                { return engine.SyncCapabilities{} }

// TestEarlyUpdate checks that updates during the backward pass give the same bits as updates
// after it, if every piece is updated as soon as it is allowed: before each kernel of the
// backward pass, the caller waits until a helper has computed all allowed pieces.
func TestEarlyUpdate(t *testing.T) {
	for _, net := range networks(t) {
		for _, recompute := range []bool{false, true} {
			g, p := loweredNetwork(t, net, 2, nn.Train, plan.Options{Fuse: true, Recompute: recompute})
			updates := []optim.Update{
				{Rule: optim.RuleAdam, WeightDecay: 0.1},
				{Rule: optim.RuleAdamW, WeightDecay: 0.1},
				{Rule: optim.RuleSGD, Momentum: 0.9, Nesterov: true},
				{Rule: optim.RuleSGD},
			}
			if underRace { // the goroutines of all rules share the same data
				updates = updates[:1]
			}
			for _, u := range updates {
				u.LearningRate, u.Beta1, u.Beta2, u.Epsilon = 1e-2, 0.9, 0.99, 1e-3
				t.Run(fmt.Sprintf("%s/recompute-%v/%s-%v", net.Name(), recompute, u.Rule, u.Momentum), func(t *testing.T) {
					want := trainedBits(t, g, p, noExchange{}, u, false)
					if got := trainedBits(t, g, p, nil, u, true); len(want) < 1000 || !slices.Equal(got, want) {
						t.Errorf("early updates change the parameters (%d values)", len(want))
					}
				})
			}
		}
	}
}

// trainedBits returns the bits of all persistent tensors after three steps on two threads. If
// early is set, it checks that most of the update is allowed early, and lets a helper compute
// every piece before the next kernel.
func trainedBits(t *testing.T, g *nn.Graph, p *plan.Program, sync engine.GradSync, u optim.Update, early bool) []uint32 {
	t.Helper()
	x, ok := loaded(t, open(t, "", 2), p, g).(*executable)
	if !ok {
		t.Fatal("no executable of this package")
	}
	o := &x.optimizer
	if early {
		if got, all := o.allowed[len(p.Kernels)-1], len(o.pieces); got == 0 || got < all/3 {
			t.Errorf("%d of %d pieces may be updated before the end of the backward pass", got, all)
		}
		var done atomic.Int64
		update := o.update.Run
		o.update.Run = func(thread, piece int) {
			update(thread, piece)
			done.Add(1)
		}
		for i := p.Forward; i < len(p.Kernels); i++ {
			await := threads.Task{Items: 2, Run: func(_ *threads.Worker, lo, _ int) {
				if lo == 0 && i == p.Forward {
					done.Store(0)
				}
				for lo == 0 && i > p.Forward && done.Load() < int64(o.allowed[i-1]) {
					runtime.Gosched()
				}
			}}
			x.steps[i] = append([]threads.Task{await}, x.steps[i]...)
		}
	}
	for u.Step = 1; u.Step <= 3; u.Step++ {
		if _, err := x.Step(context.Background(), sync, &u); err != nil {
			t.Fatal(err)
		}
	}
	var bits []uint32
	for _, name := range x.Names() {
		v, err := x.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range v {
			bits = append(bits, math.Float32bits(float32(f)))
		}
	}
	return bits
}

// TestEarlyUpdateIsRefused lists the steps whose updates must wait for the end of the backward
// pass: an exchange, clipping and rules that need whole parameters change the update.
func TestEarlyUpdateIsRefused(t *testing.T) {
	g, p := lowered(t, alignedUNet(), 2, nn.Train, plan.Options{Fuse: true})
	x, ok := loaded(t, open(t, "", 2), p, g).(*executable)
	if !ok {
		t.Fatal("no executable of this package")
	}
	for _, c := range []struct {
		name string
		sync engine.GradSync
		u    optim.Update
		want bool
	}{
		{"adam alone", nil, optim.Update{Rule: optim.RuleAdam}, true},
		{"exchange", noExchange{}, optim.Update{Rule: optim.RuleAdam}, false},
		{"clipping", nil, optim.Update{Rule: optim.RuleAdam, ClipNorm: 1}, false},
		{"layer by layer", nil, optim.Update{Rule: optim.RuleLARS}, false},
	} {
		x.prepareUpdate(&c.u)
		if got := x.canUpdateEarly(c.sync, &c.u); got != c.want {
			t.Errorf("%s: updates early is %v, want %v", c.name, got, c.want)
		}
	}
}
