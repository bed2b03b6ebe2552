package strategy

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// largeToy is an executable with one parameter of largeElements elements in one bucket.
type largeToy struct {
	tensors
	weights, gradients []float64
}

// largeElements makes a gradient far larger than the headers of messages.
const largeElements = 12_000

func (x *largeToy) Program() *plan.Program {
	return &plan.Program{Params: []plan.Param{{Name: "w"}}, Tensors: []plan.Tensor{{Name: "w", Shape: []int{100, largeElements / 100}}}}
}

func (x *largeToy) Step(_ context.Context, sync engine.GradSync, _ *optim.Update) (engine.Timing, error) {
	if sync == nil { // one worker
		return engine.Timing{}, nil
	}
	if err := sync.ReduceBucket(0, device.Buffer{F64: x.gradients}, device.Stream{}); err != nil {
		return engine.Timing{}, err
	}
	return engine.Timing{}, sync.Wait()
}

func (x *largeToy) Capabilities() engine.Capabilities {
	return engine.Capabilities{HostMemory: &engine.HostMemory{Buckets: x.BucketMemory, Unpack: x.Unpack, Pack: x.Pack}}
}

func (x *largeToy) BucketMemory() []engine.BucketMemory {
	return []engine.BucketMemory{{Gradients: device.Buffer{F64: x.gradients}, Parameters: []engine.ParameterMemory{{Name: "w", Weights: device.Buffer{F64: x.weights}}}}}
}

func (*largeToy) Unpack(_ string, stored device.Buffer) ([]float64, error) { return stored.F64, nil }

func (*largeToy) Pack(_ string, v []float64, stored device.Buffer) error {
	copy(stored.F64, v)
	return nil
}

// TestSentBytesAreThoseOfTheFormula: what the transport has sent in 4 steps and at the end of the
// epoch is what the strategy's formula says, for each strategy that has one. Asynchronous
// strategies also send the parameters at the end of the epoch.
func TestSentBytesAreThoseOfTheFormula(t *testing.T) {
	const steps = 4
	counted := 0
	for _, c := range []Config{
		{Name: NameDDP},
		{NoCommunication: true},
		{Name: NameLocalSGD, Steps: 2},
		{Name: NameZeRO1},
		{Name: NameParamServer},
		{Name: NameParamServer, Servers: 2},
		{Name: NameParamServer, MaxStaleness: 8},
		{Name: NameParamServer, MaxStaleness: 8, Servers: 2},
		{Name: NameAsyncPeer},
		{Name: NameHorovod},
		{Name: NameMirrored},
		{Name: NameMultiWorker, Replicas: 2},
		{GradientCompression: "fp16"},
		{GradientCompression: "bf16"},
	} {
		for _, n := range []int{1, 2, 3, 4} {
			if c.serverCount() > n || c.CheckWorkers(n) != nil {
				continue
			}
			groups := collective.InProcess(n)
			if c.Name == NameMultiWorker {
				groups = collective.InProcessNodes(n, c.Replicas)
			}
			const parameterBytes = 8 * largeElements
			perStep, ok := c.SentBytes(n, parameterBytes)
			var mu sync.Mutex
			sent := 0.0
			err := together(groups, func(g collective.Group) (err error) {
				x := &largeToy{weights: make([]float64, largeElements), gradients: make([]float64, largeElements)}
				x.tensors = tensors{"w": x.weights}
				exe := x
				s, err := New(t.Context(), c, nil, g)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, s.Close()) }()
				if err := s.Start(t.Context(), exe, nil); err != nil {
					return err
				}
				before, counts := collective.Sent(g)
				for step := 1; step <= steps; step++ {
					if _, err := s.Step(t.Context(), exe, Step{Batch: 1, Batches: 1, Update: optim.Update{Rule: optim.RuleSGD, LearningRate: 0.1, Step: step}}); err != nil {
						return err
					}
				}
				if err := s.Equalize(t.Context(), exe); err != nil {
					return err
				}
				after, _ := collective.Sent(g)
				mu.Lock()
				defer mu.Unlock()
				if e, estimates := s.(SentEstimator); estimates {
					perStep, ok = e.SentBytes(1), true
				}
				if sent += float64(after - before); !counts {
					return errors.New("the group does not count")
				}
				return nil
			})
			if err != nil {
				t.Fatalf("%v, %d ranks: %v", c, n, err)
			}
			if !ok {
				t.Errorf("%v has no formula", c)
				continue
			}
			want := steps * float64(n) * perStep
			switch {
			case c.Name == NameAsyncPeer: // the average of all
				want += float64(n) * allReduceBytes(n, parameterBytes)
			case c.IsAsynchronous(): // the servers' broadcast
				want += float64(n-1) * parameterBytes
			}
			// Headers and requests: a few hundred bytes per message of up to 96,000.
			if math.Abs(sent-want) > 0.03*want+1000*float64(n-1) {
				t.Errorf("%v, %d ranks: %g bytes were sent, want %g", c, n, sent, want)
			}
			if sent > 0 {
				counted++
			}
		}
	}
	if counted == 0 {
		t.Error("nothing was sent")
	}
}

// TestFormulasOfOneWorker: one worker sends nothing.
func TestFormulasOfOneWorker(t *testing.T) {
	for _, k := range Kinds() {
		if k.SentBytes == nil {
			continue
		}
		if n := k.SentBytes(Config{Name: k.Name}, 1, 1000); n != 0 {
			t.Errorf("%s: one worker sends %g bytes per step, want 0", k.Name, n)
		}
	}
}
