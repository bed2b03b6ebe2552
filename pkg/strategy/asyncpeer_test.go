package strategy

import (
	"errors"
	"maps"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/optim"
)

// TestAsyncPeerAlone: one worker computes what it computes with any other strategy.
func TestAsyncPeerAlone(t *testing.T) {
	for _, rule := range optim.Rules() {
		want := oneToy(t, rule, 1, 5)
		got := trainToys(t, Config{Name: NameAsyncPeer}, rule, 1, 5, 0)
		if d := farthest(want, got.params[0]); !(d < 1e-12) {
			t.Errorf("%s: the parameters differ by %g", rule, d)
		}
	}
}

// TestAsyncPeerConverges: the result differs from ddp's, but the loss falls. Without noise, the
// mean of the parameters approaches the minimum by exp(-0.02·100) each epoch, so its squared
// distance falls to 1/55. The test requires a fifth.
func TestAsyncPeerConverges(t *testing.T) {
	const steps = 100
	for ranks := 1; ranks <= 4; ranks++ {
		first := quadraticLoss(newToy(0).params, ranks)
		got := trainQuadratic(t, Config{Name: NameAsyncPeer}, ranks, steps)
		if loss := quadraticLoss(got, ranks); !(loss < first/5) {
			t.Errorf("%d ranks: the loss fell from %g to %g only", ranks, first, loss)
		}
		synchronous := trainQuadratic(t, Config{Name: NameParamServer}, ranks, steps)
		if d := farthest(synchronous, got); (d > 1e-6) != (ranks > 1) {
			t.Errorf("%d ranks: the parameters differ by %g from those of a synchronous training", ranks, d)
		}
	}
}

// TestAsyncPeerAnswersWhileItComputes: a passive worker answers during its backward pass, so
// its gradient is old, and the active one does not wait for it.
func TestAsyncPeerAnswersWhileItComputes(t *testing.T) {
	const steps = 6
	for _, ranks := range []int{2, 3, 4} {
		passive := max(1, ranks/2)
		r := trainAsync(t, Config{Name: NameAsyncPeer}, ranks, steps, plainSGD, func(p *progress, rank, step int) {
			switch {
			case step > 1:
			case rank >= passive: // all passive workers have read their parameters
				for other := range passive {
					p.waitFor(p.begun, other, 1)
				}
			default: // all active workers have averaged three times
				for other := passive; other < ranks; other++ {
					p.waitFor(p.begun, other, 4)
				}
			}
		})
		sum := 0
		for rank := range ranks {
			if rank < passive {
				sum += r.staleness[rank][0]
				continue
			}
			for step, s := range r.staleness[rank] {
				if s != 0 {
					t.Errorf("%d ranks: step %d of the active rank %d has staleness %d", ranks, step+1, rank, s)
				}
			}
		}
		if least := 3 * (ranks - passive); sum < least {
			t.Errorf("%d ranks: the passive ranks' first gradients have staleness %d in total, want at least %d", ranks, sum, least)
		}
	}
}

// TestAsynchronousSlots: a new strategy continues with the slots of the previous one, and the
// slots of all ranks are saved.
func TestAsynchronousSlots(t *testing.T) {
	for _, c := range []Config{{Name: NameAsyncPeer}, {Name: NameParamServer, MaxStaleness: 2, Servers: 2}} {
		first := trainAsync(t, c, 3, 4, func(step int) optim.Update { return testUpdateWithoutNorms(step) }, nil).slots
		want := 3 * 2 // three parameters with two slots
		if c.Name == NameAsyncPeer {
			want *= 3 // ranks
		}
		if len(first) != want {
			t.Errorf("%v: %d slots are saved, want %d", c, len(first), want)
		}
		saved := maps.Clone(first)
		maps.Copy(saved, newToy(0).params)
		err := together(collective.InProcess(3), func(g collective.Group) (err error) {
			s, err := New(t.Context(), c, nil, g)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			exe := newToy(g.Rank())
			if err := s.Start(t.Context(), exe, saved); err != nil {
				return err
			}
			again, err := s.State(t.Context(), exe)
			if g.Rank() == 0 && (len(again) != len(first) || farthest(first, again) != 0) {
				t.Errorf("%v: the slots differ after they were restored", c)
			}
			return err
		})
		if err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// testUpdateWithoutNorms returns an update of Adam that several servers can apply by themselves.
func testUpdateWithoutNorms(step int) optim.Update {
	u := testUpdate(optim.RuleAdam, step)
	u.ClipNorm = 0
	return u
}
