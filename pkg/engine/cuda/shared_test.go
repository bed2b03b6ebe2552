package cuda

import (
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/internal/enginetest"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// What the tests of all engines share, by the names that this package's tests use.
var (
	near           = enginetest.CheckNear
	largest        = enginetest.MaxMagnitude
	snapshot       = enginetest.SnapshotTensors
	unchanged      = enginetest.CheckUnchanged
	truth          = enginetest.NewReferenceEngine
	initialise     = enginetest.SetInitialValues
	feed           = enginetest.SetRandomInputs
	smallUNet      = enginetest.SmallUNetConfig
	batchOf        = enginetest.RandomBatch
	programOf      = enginetest.LowerUNet
	loweredNetwork = enginetest.LowerNetwork
)

type quietSync = enginetest.NoOpSync

// loaded is p on e, with one step done.
func loaded(t testing.TB, e engine.Engine, p *plan.Program, g *nn.Graph) engine.Executable {
	t.Helper()
	return enginetest.LoadAndStep(t, e, p, g, poison)
}

// TestEngine runs the checks that every engine must pass.
func TestEngine(t *testing.T) {
	enginetest.EngineUnderTest{Open: func(t testing.TB, change func(*engine.Options)) engine.Engine {
		o := gpuOptions("fp32")
		if change != nil {
			change(&o)
		}
		return open(t, o)
	}, FillNaN: poison, CheckPadding: checkPadding}.CheckAll(t)
}
