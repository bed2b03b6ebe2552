package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/collective/schedule"
	"lockstep/pkg/internal/device"
)

// algorithmsVariable is set in the environment of the workers that TestAlgorithmsBetweenHosts
// starts, in addition to namespaceVariable.
const algorithmsVariable = "RENDEZVOUS_TEST_ALGORITHMS"

// addUpByAlgorithms runs a worker of TestAlgorithmsBetweenHosts: it joins the run once with each
// algorithm, and checks all-reduces of several sizes.
func addUpByAlgorithms() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	e, err := FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	for _, name := range schedule.Names() {
		if err := addUpBetweenHosts(ctx, e, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		e.MasterPort++ // another rank may still be leaving the last run
	}
	fmt.Println("correct")
	return nil
}

// addUpBetweenHosts joins the run with an algorithm and checks all-reduces. The numbers are
// whole and small, so their sums are exact in any order of the additions.
func addUpBetweenHosts(ctx context.Context, e Env, algorithm string) error {
	e.Algorithm = algorithm
	g, err := Join(ctx, e, Options{machine: os.Getenv(namespaceVariable)})
	if err != nil {
		return err
	}
	if algorithm != schedule.Ring && !strings.Contains(g.Name(), algorithm) {
		return errors.Join(fmt.Errorf("joined by %s", g.Name()), g.Close())
	}
	for _, n := range []int{1, 3, 1000, 100_003} {
		b := device.Buffer{F32: make([]float32, n)}
		for i := range b.F32 {
			b.F32[i] = float32(i%97 + g.Rank())
		}
		if err := g.AllReduce(ctx, b); err != nil {
			return errors.Join(err, g.Close())
		}
		world := g.Size()
		for i, v := range b.F32 {
			if want := float32(world*(i%97) + world*(world-1)/2); v != want {
				return errors.Join(fmt.Errorf("element %d of %d is %g on rank %d, want %g", i, n, v, g.Rank(), want), g.Close())
			}
		}
	}
	return errors.Join(addUp([]collective.Group{g}), g.Close())
}

// TestAlgorithmsBetweenHosts checks the sums of each algorithm between simulated hosts with a
// limited bandwidth and, where the kernel has netem, with a delay and losses.
func TestAlgorithmsBetweenHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for name, link := range map[string]hostLink{
		"rate":  {Rate: "200mbit"},
		"delay": {Rate: "200mbit", Delay: 2 * time.Millisecond},
		"loss":  {Rate: "200mbit", LossPercent: 0.5},
	} {
		for _, tt := range []struct{ hosts, perHost int }{{2, 1}, {4, 1}, {2, 2}} {
			t.Run(fmt.Sprintf("%s_%dx%d", name, tt.hosts, tt.perHost), func(t *testing.T) {
				network := newHosts(t, tt.hosts, link)
				world := tt.hosts * tt.perHost
				var wg sync.WaitGroup
				for rank := range world {
					cmd := hostCommand(t, network, rank, world, tt.perHost)
					cmd.Env = append(cmd.Env, algorithmsVariable+"=1", "LOCKSTEP_COLLECTIVE=tcp")
					wg.Go(func() {
						if out, err := cmd.CombinedOutput(); err != nil || string(out) != "correct\n" {
							t.Errorf("rank %d: %v, said %q", rank, err, out)
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
