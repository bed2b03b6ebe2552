package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// joinReplicas calls JoinReplicas concurrently for every Env, with the number of replicas of
// the same index.
func joinReplicas(ctx context.Context, envs []Env, options []Options, replicas []int) ([][]collective.Group, []error) {
	groups, errs := make([][]collective.Group, len(envs)), make([]error, len(envs))
	var wg sync.WaitGroup
	for i := range envs {
		wg.Go(func() { groups[i], errs[i] = JoinReplicas(ctx, envs[i], options[i], replicas[i]) })
	}
	wg.Wait()
	return groups, errs
}

// TestReplicasJoinAndAddUp: the replicas of all processes form one group, over each transport
// between the processes.
func TestReplicasJoinAndAddUp(t *testing.T) {
	for _, c := range []struct {
		transport           string
		processes, replicas int
		want                string // name of the group
	}{
		{"", 1, 3, "in-process"},
		{"shm", 2, 1, "shared memory"},
		{"shm", 2, 2, "in-process inside each of 2 nodes, shared memory between them"},
		{"unix", 2, 2, "in-process inside each of 2 nodes, unix ring between them"},
		{"tcp", 3, 2, "in-process inside each of 3 nodes, tcp ring between them"},
	} {
		t.Run(fmt.Sprint(c.transport, c.processes, c.replicas), func(t *testing.T) {
			envs, options := run(t, c.processes, Options{BuildID: "b"})
			for i := range envs {
				envs[i].Collective = c.transport
			}
			all, errs := joinReplicas(t.Context(), envs, options, []int{c.replicas, c.replicas, c.replicas})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			var groups []collective.Group
			for _, g := range all {
				groups = append(groups, g...)
			}
			defer closeAll(t, groups)
			world := c.processes * c.replicas
			var wg sync.WaitGroup
			for rank, g := range groups {
				if g.Rank() != rank || g.Size() != world || g.Name() != c.want {
					t.Errorf("rank %d of %d over %q, want %d of %d over %q", g.Rank(), g.Size(), g.Name(), rank, world, c.want)
				}
				wg.Go(func() {
					b := device.Buffer{F32: []float32{1, float32(rank), 2}}
					if err := g.AllReduce(t.Context(), b); err != nil {
						t.Error(err)
					} else if want := float32(world * (world - 1) / 2); b.F32[0] != float32(world) || b.F32[1] != want {
						t.Errorf("rank %d: got %v, want [%d %v …]", rank, b.F32, world, want)
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestMisfitReplicas: processes with different numbers of replicas, and MPI, are refused.
func TestMisfitReplicas(t *testing.T) {
	envs, options := run(t, 2, Options{Timeout: time.Minute})
	groups, errs := joinReplicas(t.Context(), envs, options, []int{2, 3})
	for i, err := range errs {
		wantError(t, err, "rank 1 (process", "has 3 replicas in its process, rank 0 has 2 replicas: give all processes the same strategy and the same strategy.replicas")
		closeAll(t, groups[i])
	}
	_, errs = join(t.Context(), envs, []Options{{replicas: 2}, {}}) // a process of another strategy
	wantError(t, errs[1], "has 1 replica in its process, rank 0 has 2 replicas")
	_, err := JoinReplicas(t.Context(), Env{World: 2, Collective: "mpi"}, Options{}, 2)
	wantError(t, err, "LOCKSTEP_COLLECTIVE is mpi, by which a process is one rank, but each process has 2 replicas")
	_, err = JoinReplicas(t.Context(), Env{World: 1}, Options{}, 0)
	wantError(t, err, "got 0 replicas per process: use at least 1")
}

// TestFormatTFConfig: a worker reads the rank and the address that a launcher has written.
func TestFormatTFConfig(t *testing.T) {
	entry := FormatTFConfig([]string{"a:2222", "b:2223"}, 1)
	if want := `TF_CONFIG={"cluster":{"worker":["a:2222","b:2223"]},"task":{"type":"worker","index":1}}`; entry != want {
		t.Errorf("got %s, want %s", entry, want)
	}
	e, err := FromEnv(getenvOf(entry + " LOCKSTEP_TOKEN=secret"))
	if err != nil || e.Rank != 1 || e.World != 2 || e.Source != SourceTFConfig || e.Address() != "a:2222" {
		t.Errorf("got %+v, %v", e, err)
	}
}

// TestRankVariables: without these variables, TF_CONFIG decides, whatever launcher set them.
func TestRankVariables(t *testing.T) {
	without := RankVariables()
	for _, variables := range []string{openMPIVariables, mpichVariables, slurmVariables, "RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 MASTER_ADDR=c MASTER_PORT=1"} {
		getenv := getenvOf(strings.Join([]string{variables, FormatTFConfig([]string{"a:2222", "b:2223"}, 1), "LOCKSTEP_TOKEN=secret"}, " "))
		e, err := FromEnv(func(name string) string {
			for _, w := range without {
				if name == w {
					return ""
				}
			}
			return getenv(name)
		})
		if err != nil || e.Source != SourceTFConfig || e.World != 2 || e.Address() != "a:2222" {
			t.Errorf("%s: got %+v, %v", variables, e, err)
		}
	}
}
