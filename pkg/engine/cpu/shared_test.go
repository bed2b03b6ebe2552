package cpu

import (
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/internal/enginetest"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// Helpers of the tests of all engines, under the names that this package's tests use.
var (
	near           = enginetest.CheckNear
	largest        = enginetest.MaxMagnitude
	snapshot       = enginetest.SnapshotTensors
	truth          = enginetest.NewReferenceEngine
	initialise     = enginetest.SetInitialValues
	feed           = enginetest.SetRandomInputs
	smallUNet      = enginetest.SmallUNetConfig
	lowered        = enginetest.LowerUNet
	loweredNetwork = enginetest.LowerNetwork
)

type (
	deafSync  = enginetest.RecordingSync
	quietSync = enginetest.NoOpSync
)

// loaded returns p loaded on e, after one step.
func loaded(t testing.TB, e engine.Engine, p *plan.Program, g *nn.Graph) engine.Executable {
	t.Helper()
	return enginetest.LoadAndStep(t, e, p, g, poisoned)
}

// TestEngine runs the checks that every engine must pass.
func TestEngine(t *testing.T) {
	enginetest.EngineUnderTest{Open: func(t testing.TB, change func(*engine.Options)) engine.Engine {
		o := engine.DefaultOptions()
		o.Threads = 2
		if change != nil {
			change(&o)
		}
		e, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	}, FillNaN: poisoned, CheckPadding: checkPadding}.CheckAll(t)
}

// poisoned calls poison; its type is the one that the tests of all engines expect.
func poisoned(_ testing.TB, x engine.Executable) { poison(x) }
