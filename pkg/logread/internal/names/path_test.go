package names

import (
	"testing"

	"lockstep/pkg/runs"
)

// TestIdentityFromPaths checks the worker counts and repeat numbers in usual
// names of folders and files.
func TestIdentityFromPaths(t *testing.T) {
	type pathFields struct{ workers, seed int }
	for path, want := range map[string]pathFields{
		"/exp/base/4GPU/00/out.log":       {workers: 4, seed: 0},
		"/exp/unet-n2-s7/train.log":       {workers: 2, seed: 7},
		"/exp/horovod_8gpus_seed3.out":    {workers: 8, seed: 3},
		"/exp/np16/rep2.log":              {workers: 16, seed: 2},
		"/exp/world_size_32/log.txt":      {workers: 32, seed: -1},
		"/exp/num_workers_8/out.log":      {workers: -1, seed: -1}, // of the loader
		"/exp/resnet50.out":               {workers: -1, seed: -1},
		"/exp/gpus=2/out.log":             {workers: 2, seed: -1},
		"/exp/log_99999999999999gpus.out": {workers: -1, seed: -1},
	} {
		got := pathFields{-1, -1}
		for _, e := range ParsePath(path).Evidence(nil) {
			switch {
			case e.Property == runs.PropertyWorkers && got.workers < 0:
				got.workers = int(e.Number)
			case e.Property == runs.PropertySeed && got.seed < 0:
				got.seed = int(e.Number)
			}
		}
		if got != want {
			t.Errorf("%s: %+v, expected %+v", path, got, want)
		}
	}
}

// TestNodesFromPaths checks the node counts in names of folders and files.
func TestNodesFromPaths(t *testing.T) {
	for path, want := range map[string]int{"/x/4nodes/out.log": 4, "/x/nodes_16.out": 16, "/x/run/node01.log": 0, "/x/node2/out.log": 0, "/x/2-node/out.log": 2, "/x/out.log": 0} {
		got := 0
		for _, e := range ParsePath(path).Evidence(nil) {
			if e.Property == runs.PropertyNodes {
				got = int(e.Number)
			}
		}
		if got != want {
			t.Errorf("%s: %d nodes, expected %d", path, got, want)
		}
	}
}

// TestScaledNodes checks the numbers of nodes in the names of files of a scaling study.
func TestScaledNodes(t *testing.T) {
	for path, want := range map[string]int64{
		"/x/weak_scale_8.json": 8, "/x/weak_scale_noddp_32.json": 32, "/x/WeakScaling-16.json.gz": 16, "/x/scaling_2/out.json": 0,
		"/x/weak_scale_4_rep2.json": 4, "/x/weak_scale.json": 0, "/x/weak_scale_08.json": 0, "/x/upscale_8.json": 0, "/x/benchy_8.json": 0,
		"/x/weak_scale_8gpus.json": 0, "/x/weak_scale_99999999.json": 0,
	} {
		if e, ok := ParsePath(path).ScaledNodes(); e.Number != want || ok != (want > 0) || ok && e.Property != runs.PropertyNodes {
			t.Errorf("%s: %d nodes, expected %d", path, e.Number, want)
		}
	}
}
