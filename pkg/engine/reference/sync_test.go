package reference_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// recorder is a GradSync that notes what it is handed.
type recorder struct {
	handed  []int
	flat    [][]float64 // copies of the buckets
	wait    int
	scale   float64
	failing bool
	probe   func() bool
	probed  []bool // what probe said at each bucket
}

func (r *recorder) ReduceBucket(i int, b device.Buffer, _ device.Stream) error {
	if r.failing {
		return errors.New("peer is gone")
	}
	r.handed = append(r.handed, i)
	if r.probe != nil {
		r.probed = append(r.probed, r.probe())
	}
	r.flat = append(r.flat, slices.Clone(b.F64))
	for j := range b.F64 {
		b.F64[j] *= r.scale
	}
	return nil
}
func (r *recorder) Wait() error                           { r.wait++; return nil }
func (r *recorder) Capabilities() engine.SyncCapabilities { return engine.SyncCapabilities{} }

// TestBucketsAreHandedOver: each bucket once, in order, as one run of memory
// that the optimiser reads after Wait.
func TestBucketsAreHandedOver(t *testing.T) {
	for _, overlap := range []bool{true, false} {
		o := engine.DefaultOptions()
		o.Device, o.Precision, o.Overlap = "reference", "fp64", overlap
		e, err := reference.New(o)
		if err != nil {
			t.Fatal(err)
		}
		x := load(t, e, tinyUNet(t), 2, nn.Train, plan.Options{Fuse: true, BucketBytes: 2000}, nil)
		image, mask := blobs(2, 16)
		set(t, x, image, mask)
		before := map[string][]float64{}
		for _, q := range x.Program().Params {
			before[q.Name] = get(t, x, q.Name)
		}
		// The first convolution's gradient is the last to be computed; until then
		// it is zero.
		backwardDone := func() bool {
			return slices.ContainsFunc(gradient(t, x, "down.0.a.conv.weight"), func(g float64) bool { return g != 0 })
		}
		r := &recorder{scale: 0.5, probe: backwardDone}
		step(t, x, r, &optim.Update{Rule: "sgd", LearningRate: 1, Step: 1})
		buckets := x.Program().Buckets
		if len(buckets) < 3 || len(r.handed) != len(buckets) || !slices.IsSorted(r.handed) || r.wait != 1 {
			t.Fatalf("overlap=%v: buckets %v of %d, %d waits", overlap, r.handed, len(buckets), r.wait)
		}
		if r.probed[0] == overlap || !r.probed[len(buckets)-1] {
			t.Errorf("overlap=%v: backward was done at the buckets: %v", overlap, r.probed)
		}
		for i, b := range buckets {
			flat := r.flat[i]
			for _, j := range b.Params {
				q := x.Program().Params[j]
				g, after := gradient(t, x, q.Name), get(t, x, q.Name)
				for k := range g {
					if g[k] != flat[k]/2 || after[k] != before[q.Name][k]-g[k] {
						t.Fatalf("overlap=%v: %s[%d]: handed over %v, gradient %v, weight %v → %v", overlap, q.Name, k, flat[k], g[k], before[q.Name][k], after[k])
					}
				}
				flat = flat[len(g):]
			}
			if len(flat) != 0 {
				t.Errorf("bucket %d is longer than its gradients", i)
			}
		}
	}
}

func TestReductionErrorStopsTheStep(t *testing.T) {
	x := scalar(t)
	_, err := x.Step(context.Background(), &recorder{failing: true}, &optim.Update{Rule: "sgd", LearningRate: 1, Step: 1})
	if err == nil || !strings.Contains(err.Error(), "step: reduce gradient bucket 0: peer is gone") {
		t.Errorf("error %v", err)
	}
	if get(t, x, "c.weight")[0] != 0 {
		t.Error("the optimiser ran")
	}
}

// TestMeanOfHalvesIsTheWhole: without batch norm the gradient of a batch is
// the mean of those of its halves; what data-parallel training rests on.
func TestMeanOfHalvesIsTheWhole(t *testing.T) {
	u, err := model.UNet2D(model.UNet2DConfig{Base: 2, Depth: 2, InChannels: 1, OutChannels: 1, Height: 16, Width: 16, Norm: "none"})
	if err != nil {
		t.Fatal(err)
	}
	e := open(t, "fp64")
	image, mask := blobs(4, 16)
	whole := load(t, e, u, 4, nn.Train, plan.Options{}, nil)
	set(t, whole, image, mask)
	step(t, whole, nil, nil)
	half := load(t, e, u, 2, nn.Train, plan.Options{}, nil)
	mean := map[string][]float64{}
	for i := range 2 {
		n := len(image) / 2
		set(t, half, image[i*n:(i+1)*n], mask[i*n:(i+1)*n])
		step(t, half, nil, nil)
		for _, q := range half.Program().Params {
			if mean[q.Name] == nil {
				mean[q.Name] = make([]float64, half.Program().Tensors[q.Tensor].Elements())
			}
			for k, g := range gradient(t, half, q.Name) {
				mean[q.Name][k] += g / 2
			}
		}
	}
	for name, m := range mean {
		for k, g := range gradient(t, whole, name) {
			if !near(g, m[k], 1e-14) {
				t.Fatalf("%s[%d]: %v in one batch, %v as a mean of two", name, k, g, m[k])
			}
		}
	}
}

// TestNonFiniteLoss: parameters, slots and running statistics are as before,
// and no bucket is handed over.
func TestNonFiniteLoss(t *testing.T) {
	x := load(t, open(t, "fp32"), tinyUNet(t), 2, nn.Train, plan.Options{Fuse: true}, nil)
	image, mask := blobs(2, 16)
	set(t, x, image, mask)
	u := optim.Update{Rule: "adam", LearningRate: 1e-2, Step: 1, Beta1: .9, Beta2: .999, Epsilon: 1e-8}
	step(t, x, nil, &u)
	before := map[string][]float64{}
	for _, n := range x.Names() {
		before[n] = get(t, x, n)
	}
	image[17] = float32(math.NaN())
	set(t, x, image, mask)
	r := &recorder{}
	u.Step = 2
	if _, err := x.Step(context.Background(), r, &u); !errors.Is(err, engine.ErrNonFinite) {
		t.Fatalf("error %v, want ErrNonFinite", err)
	}
	if len(r.handed) != 0 || r.wait != 0 {
		t.Error("buckets of a non-finite step were handed over")
	}
	for n, want := range before {
		if !slices.Equal(get(t, x, n), want) {
			t.Errorf("%s changed", n)
		}
	}
}

func TestCancelledStep(t *testing.T) {
	x := scalar(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := x.Step(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}
