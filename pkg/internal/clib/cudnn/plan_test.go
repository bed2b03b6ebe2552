package cudnn_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/cudnn"
)

// ready returns a simulated cuDNN and the graph of a ReLU.
func ready(t *testing.T) (*cudnn.Library, *cudnn.Graph) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	st, err := clibtest.New(clibtest.Options{}).OpenStack()
	check(t, err)
	ctx, err := st.Driver.PrimaryCtxRetain(0)
	check(t, err)
	check(t, st.Driver.CtxSetCurrent(ctx))
	h, err := st.CUDNN.Create()
	check(t, err)
	dims := []int64{1, 8, 2, 2}
	graph, err := st.CUDNN.NewGraph(h, cudnn.Pointwise{Mode: cudnn.PointwiseReLU, X: cudnn.Tensor{ID: 1, Dims: dims}, Y: cudnn.Tensor{ID: 2, Dims: dims}})
	check(t, err)
	return st.CUDNN, graph
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestEnginesWithoutNotesAreRejected checks that an engine is rejected if its numerical notes
// cannot be read, because it may be nondeterministic.
func TestEnginesWithoutNotesAreRejected(t *testing.T) {
	lib, graph := ready(t)
	refuse := func(*int64, unsafe.Pointer) cudnn.Status { return cudnn.NotSupported }
	answer(lib, cudnn.AttrEngineBehavior, refuse)
	if plans, _, err := graph.CreatePlans(cudnn.HeurA); err != nil || len(plans) == 0 {
		t.Errorf("without notes of behaviour: %d plans, %v", len(plans), err)
	}
	answer(lib, cudnn.AttrEngineNumerical, refuse)
	plans, rejected, err := graph.CreatePlans(cudnn.HeurA)
	if len(plans) != 0 || len(rejected) == 0 || rejected[0].Engine != 0 || !errors.Is(err, cudnn.NotSupported) || !strings.Contains(err.Error(), "numerical notes") {
		t.Errorf("%d plans, rejected %v, %v", len(plans), rejected, err)
	}
}

// answer replaces the result of GetAttribute for one attribute.
func answer(lib *cudnn.Library, name cudnn.Attribute, f func(got *int64, values unsafe.Pointer) cudnn.Status) {
	get := lib.GetAttribute
	lib.GetAttribute = func(d cudnn.Descriptor, n cudnn.Attribute, typ cudnn.AttributeType, want int64, got *int64, values unsafe.Pointer) cudnn.Status {
		if n == name {
			return f(got, values)
		}
		return get(d, n, typ, want, got, values)
	}
}

// Modes A and B suggest the same engine. If its knobs differ or the library does not report
// them, there are two plans, otherwise one.
func TestConfigurationsThatTwoModesSuggest(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(*cudnn.Library)
		engines  []int64
		choicesA string // of the first plan of engine 1
	}{
		{"different knobs", func(*cudnn.Library) {}, []int64{0, 1, 1, 3, 40}, "1 2=0"},
		{"knobs that are not told", func(lib *cudnn.Library) {
			answer(lib, cudnn.AttrConfigKnobs, func(*int64, unsafe.Pointer) cudnn.Status { return cudnn.NotSupported })
		}, []int64{0, 1, 1, 3, 40}, ""},
		{"equal knobs", func(lib *cudnn.Library) {
			answer(lib, cudnn.AttrKnobValue, func(got *int64, values unsafe.Pointer) cudnn.Status {
				*(*int64)(values), *got = 7, 1
				return cudnn.Success
			})
		}, []int64{0, 1, 3, 40}, "1 2=7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			lib, graph := ready(t)
			c.change(lib)
			plans, _, err := graph.CreatePlans(cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback)
			check(t, err)
			var got []int64
			for _, p := range plans {
				got = append(got, p.Engine)
			}
			if !slices.Equal(got, c.engines) || plans[1].Choices != c.choicesA {
				t.Errorf("engines %v, want %v; choices %q, want %q", got, c.engines, plans[1].Choices, c.choicesA)
			}
		})
	}
}

// TestPlanFromChoices creates a plan again from its choices, without a heuristic.
func TestPlanFromChoices(t *testing.T) {
	_, graph := ready(t)
	plans, _, err := graph.CreatePlans(cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback)
	check(t, err)
	for _, p := range plans {
		again, err := graph.PlanFromChoices(p.Choices)
		if err != nil || again.Engine != p.Engine || again.Workspace != p.Workspace || !slices.Equal(again.Numerical, p.Numerical) || again.Choices != p.Choices {
			t.Errorf("%q gives %+v, %v, want %+v", p.Choices, again, err, p)
			continue
		}
		check(t, again.Close())
	}
	for choices, want := range map[string]string{
		"": "no engine number", "fast": "no engine number", "1 tile": `invalid knob "tile"`,
		"1 2=9": "configuration of engine 1 2=9", "1 5=0": "has no knob 5", "77 2=0": "no engine 77",
		"2 2=0": "plan of engine 2", // it is not supported here
	} {
		if _, err := graph.PlanFromChoices(choices); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", choices, err, want)
		}
	}
}

// TestEnginesThatFailInside checks that an engine with an internal error is rejected like one
// that is not supported, and that a failure of the device ends the search.
func TestEnginesThatFailInside(t *testing.T) {
	lib, graph := ready(t)
	finalize, made, status := lib.Finalize, map[cudnn.Descriptor]bool{}, cudnn.Status(4005)
	create := lib.CreateDescriptor
	lib.CreateDescriptor = func(typ cudnn.DescriptorType) (cudnn.Descriptor, cudnn.Status) {
		d, s := create(typ)
		made[d] = typ == cudnn.DescPlan
		return d, s
	}
	failed := 0
	lib.Finalize = func(d cudnn.Descriptor) cudnn.Status {
		if made[d] && failed == 0 {
			failed++
			return status
		}
		return finalize(d)
	}
	plans, rejected, err := graph.CreatePlans(cudnn.HeurA)
	if err != nil || len(plans) != 1 || plans[0].Engine != 1 || !errors.Is(rejected[0].Err, status) {
		t.Errorf("plans %v, rejected %v, %v", plans, rejected, err)
	}
	failed, status = 0, cudnn.ExecutionFailedDriver
	if plans, _, err := graph.CreatePlans(cudnn.HeurA); !errors.Is(err, status) || len(plans) != 0 {
		t.Errorf("plans %v of a device that fails, %v", plans, err)
	}
}
