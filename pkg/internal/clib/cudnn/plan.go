package cudnn

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cuda"
)

// maxConfigsPerHeuristic is the number of engine configurations that are requested from one heuristic. cuDNN
// 9 returns fewer: it has a few dozen engines for a convolution.
const maxConfigsPerHeuristic = 128

// Graph is a graph of operations. Its descriptors are finalized.
type Graph struct {
	b      *descriptorBuilder
	handle Handle
	desc   Descriptor
}

// NewGraph creates a graph, which the caller must close.
func (l *Library) NewGraph(h Handle, ops ...Op) (*Graph, error) {
	b := l.newDescriptorBuilder()
	var list []Descriptor
	for _, op := range ops {
		list = append(list, op.createDescriptor(b))
	}
	d := b.newDescriptor(DescGraph)
	b.setHandle(d, AttrGraphHandle, h)
	b.setDescriptors(d, AttrGraphOps, list...)
	b.finalize(d, "operation graph")
	if b.err != nil {
		return nil, errors.Join(b.err, b.release())
	}
	return &Graph{b: b, handle: h, desc: d}, nil
}

// Close destroys the graph's descriptors. Plans of the graph remain valid.
func (g *Graph) Close() error { return g.b.release() }

// Plan is an execution plan: a graph with the engine that executes it.
type Plan struct {
	Workspace     int64 // bytes that Run needs
	Mode          HeurMode
	Rank          int     // index among the suggestions of Mode
	Engine        int64   // number of the engine, −1 if unknown
	Numerical     []int32 // numerical notes of the engine
	Behavior      []int32 // behavior notes of the engine
	Choices       string  // the engine and its knobs, for Graph.PlanFromChoices; "" if unknown
	lib           *Library
	desc          Descriptor
	configuration *descriptorBuilder // the descriptors that the plan depends on
}

// IsDeterministic reports whether the engine computes the same bits every time.
func (p *Plan) IsDeterministic() bool { return !slices.Contains(p.Numerical, NoteNondeterministic) }

func (p *Plan) String() string {
	return fmt.Sprintf("engine %d (mode %s, place %d, workspace %d bytes)", p.Engine, p.Mode, p.Rank, p.Workspace)
}

// Close destroys the plan.
func (p *Plan) Close() error { return p.configuration.release() }

// RejectedConfig is an engine configuration or heuristic that this machine does not
// support.
type RejectedConfig struct {
	Mode   HeurMode
	Rank   int // index among the suggestions of Mode; −1: the heuristic itself failed
	Engine int64
	Err    error
}

// CreatePlans creates a plan for each engine configuration that the heuristics in modes suggest,
// in the order of the suggestions. It also returns the configurations that this machine does not
// support. A configuration that several modes suggest gets only one plan, if the library reports
// its knobs.
//
// CreatePlans returns an error if there is no plan, or if the library or the device is no longer
// usable.
func (g *Graph) CreatePlans(modes ...HeurMode) ([]*Plan, []RejectedConfig, error) {
	return g.CreatePlansAtMost(maxConfigsPerHeuristic, modes...)
}

// CreatePlansAtMost is like CreatePlans, but uses only the first n configurations of each
// mode. Creating the plan of a graph with several operations takes about a second, because
// the graph is compiled.
func (g *Graph) CreatePlansAtMost(n int, modes ...HeurMode) ([]*Plan, []RejectedConfig, error) {
	var plans []*Plan
	var rejected []RejectedConfig
	seen := map[string]bool{}
	for _, mode := range modes {
		more, not, err := g.createHeuristicPlans(mode, min(n, maxConfigsPerHeuristic), seen)
		plans, rejected = append(plans, more...), append(rejected, not...)
		if err != nil {
			return nil, rejected, errors.Join(err, closePlans(plans))
		}
	}
	if len(plans) == 0 {
		err := errors.New("create plans: the library suggested no engine for this graph")
		for _, r := range rejected {
			err = fmt.Errorf("create plans: no engine supports this graph: %w", r.Err)
			if r.Rank >= 0 {
				break
			}
		}
		return nil, rejected, err
	}
	return plans, rejected, nil
}

func closePlans(plans []*Plan) error {
	var errs []error
	for _, p := range plans {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// createHeuristicPlans creates plans for the first limit configurations that one heuristic suggests. It
// skips configurations whose Choices are in seen, and adds the Choices of the other ones to seen.
func (g *Graph) createHeuristicPlans(mode HeurMode, limit int, seen map[string]bool) (plans []*Plan, rejected []RejectedConfig, err error) {
	lib := g.b.lib
	b := lib.newDescriptorBuilder()
	defer func() { err = errors.Join(err, b.release()) }()
	heur := b.newDescriptor(DescEngineHeur)
	b.setDescriptors(heur, AttrHeurGraph, g.desc)
	b.setEnum(heur, AttrHeurMode, TypeHeurMode, int32(mode))
	b.finalize(heur, "heuristics")
	if b.err != nil {
		return nil, []RejectedConfig{{Mode: mode, Rank: -1, Engine: -1, Err: b.err}}, nilUnlessFatal(b.err)
	}
	configs := make([]Descriptor, limit)
	owners := make([]*descriptorBuilder, limit)
	for i := range configs {
		owners[i] = lib.newDescriptorBuilder()
		configs[i] = owners[i].newDescriptor(DescEngineConfig)
		if owners[i].err != nil {
			return nil, nil, owners[i].err
		}
	}
	var n int64
	if s := lib.GetAttribute(heur, AttrHeurResults, TypeDescriptor, int64(limit), &n, unsafe.Pointer(&configs[0])); s != Success {
		e := lib.checkStatus("cudnnBackendGetAttribute of heuristics "+mode.String(), s)
		rejected, err = []RejectedConfig{{Mode: mode, Rank: -1, Engine: -1, Err: e}}, nilUnlessFatal(e)
		n = 0
	}
	for i, owner := range owners {
		if int64(i) >= n || err != nil {
			err = errors.Join(err, owner.release())
			continue
		}
		choices := lib.readEngineChoices(configs[i])
		if choices != "" {
			if seen[choices] {
				err = errors.Join(err, owner.release())
				continue
			}
			seen[choices] = true
		}
		p, planErr := lib.createPlanFromConfig(g.handle, owner, configs[i])
		if planErr != nil {
			rejected = append(rejected, RejectedConfig{Mode: mode, Rank: i, Engine: p.Engine, Err: planErr})
			err = errors.Join(nilUnlessFatal(planErr), owner.release())
			continue
		}
		p.Mode, p.Rank, p.Choices = mode, i, choices
		plans = append(plans, p)
	}
	if err != nil {
		return nil, rejected, errors.Join(err, closePlans(plans))
	}
	return plans, rejected, nil
}

// nilUnlessFatal returns nil if err concerns only one engine or heuristic, because another one may
// succeed. It returns err if the library or the device is no longer usable.
func nilUnlessFatal(err error) error {
	var e *Error
	if errors.As(err, &e) && (e.Result.isUnsupported() || (e.Result >= BadParam && e.Result < NotSupported) || (e.Result >= InternalError && e.Result < ExecutionFailed)) {
		return nil
	}
	return err
}

// createPlanFromConfig creates the plan of the engine configuration config, a descriptor of b. After an
// error, it still returns a plan, which contains the engine's number.
func (l *Library) createPlanFromConfig(h Handle, b *descriptorBuilder, config Descriptor) (*Plan, error) {
	p := &Plan{lib: l, configuration: b, Engine: -1}
	if err := l.readEngineInfo(p, config); err != nil {
		return p, err
	}
	p.desc = b.newDescriptor(DescPlan)
	b.setHandle(p.desc, AttrPlanHandle, h)
	b.setDescriptors(p.desc, AttrPlanConfig, config)
	b.finalize(p.desc, fmt.Sprintf("plan of engine %d", p.Engine))
	return p, p.readWorkspaceSize()
}

func (p *Plan) readWorkspaceSize() error {
	b := p.configuration
	if b.err != nil {
		return b.err
	}
	var n int64
	if s := p.lib.GetAttribute(p.desc, AttrPlanWorkspace, TypeInt64, 1, &n, unsafe.Pointer(&p.Workspace)); s != Success {
		return p.lib.checkStatus("cudnnBackendGetAttribute of the workspace", s)
	}
	return nil
}

// readEngineInfo sets the number and the notes of p's engine. It returns an error only if
// the numerical notes cannot be read, because they determine whether the engine is
// deterministic.
func (l *Library) readEngineInfo(p *Plan, config Descriptor) error {
	b := l.newDescriptorBuilder()
	engine := b.newDescriptor(DescEngine)
	defer func() { _ = b.release() }()
	if b.err != nil {
		return b.err
	}
	var n int64
	if s := l.GetAttribute(config, AttrConfigEngine, TypeDescriptor, 1, &n, unsafe.Pointer(&engine)); s != Success {
		return l.checkStatus("cudnnBackendGetAttribute of a configuration's engine", s)
	}
	var index int64
	if l.GetAttribute(engine, AttrEngineIndex, TypeInt64, 1, &n, unsafe.Pointer(&index)) == Success {
		p.Engine = index
	}
	var s Status
	if p.Numerical, s = l.readEngineNotes(engine, AttrEngineNumerical, TypeNumericalNote); s != Success {
		return l.checkStatus("cudnnBackendGetAttribute of an engine's numerical notes", s)
	}
	p.Behavior, _ = l.readEngineNotes(engine, AttrEngineBehavior, TypeBehaviorNote)
	return nil
}

func (l *Library) readEngineNotes(engine Descriptor, name Attribute, t AttributeType) ([]int32, Status) {
	buf := make([]int32, 64) // cuDNN 9 has about ten
	var n int64
	if s := l.GetAttribute(engine, name, t, int64(len(buf)), &n, unsafe.Pointer(&buf[0])); s != Success {
		return nil, s
	}
	return buf[:min(max(n, 0), int64(len(buf)))], Success
}

// JSON returns the plan as JSON. PlanFromJSON creates the plan from this text on a machine with
// the same kind of device and the same library version.
func (p *Plan) JSON() (string, error) {
	return p.lib.readTextAttribute(p.desc, AttrPlanJSON, "the plan's text")
}

// DeviceProperties returns cuDNN's description of a handle's device as JSON (cuDNN 9.8 and
// later). From this text, cuDNN can compile plans for the same kind of device on a machine
// that does not have one.
func (l *Library) DeviceProperties(h Handle) (text string, err error) {
	b := l.newDescriptorBuilder()
	defer func() { err = errors.Join(err, b.release()) }()
	d := b.newDescriptor(DescDeviceProperties)
	b.setHandle(d, AttrDeviceHandle, h)
	b.finalize(d, "device properties")
	if b.err != nil {
		return "", b.err
	}
	return l.readTextAttribute(d, AttrDeviceJSON, "the device's properties")
}

// readTextAttribute returns the value of a text attribute. description names the text in errors.
func (l *Library) readTextAttribute(d Descriptor, name Attribute, description string) (string, error) {
	var n int64
	if s := l.GetAttribute(d, name, TypeChar, 0, &n, nil); s != Success {
		return "", l.checkStatus("cudnnBackendGetAttribute of "+description, s)
	}
	if n == 0 {
		return "", nil
	}
	buf := make([]byte, n)
	if s := l.GetAttribute(d, name, TypeChar, n, &n, unsafe.Pointer(&buf[0])); s != Success {
		return "", l.checkStatus("cudnnBackendGetAttribute of "+description, s)
	}
	return clib.GoString(buf), nil
}

// PlanFromJSON creates a plan from the result of JSON. It returns an error if the text is for
// another library version or kind of device; a plan must then be chosen again.
func (l *Library) PlanFromJSON(h Handle, text string) (*Plan, error) {
	if text == "" {
		return nil, errors.New("create plan: the JSON text is empty")
	}
	b := l.newDescriptorBuilder()
	p := &Plan{lib: l, configuration: b, Engine: -1, Rank: -1}
	p.desc = b.newDescriptor(DescPlan)
	b.setHandle(p.desc, AttrPlanHandle, h)
	buf := []byte(text)
	b.setAttribute(p.desc, AttrPlanJSON, TypeChar, len(buf), unsafe.Pointer(&buf[0]))
	b.finalize(p.desc, "plan from text")
	if err := p.readWorkspaceSize(); err != nil {
		return nil, errors.Join(err, b.release())
	}
	return p, nil
}

// VariantPack contains the addresses of a plan's tensors (cuDNN's variant pack). It can be used for
// any number of executions.
type VariantPack struct {
	b    *descriptorBuilder
	desc Descriptor
}

// NewVariantPack creates a VariantPack. tensors contains the addresses of the plan's tensors by
// tensor ID. workspace may be 0 if the plan needs none.
func (l *Library) NewVariantPack(tensors map[int64]cuda.Ptr, workspace cuda.Ptr) (*VariantPack, error) {
	ids := slices.Sorted(maps.Keys(tensors))
	pointers := make([]cuda.Ptr, len(ids))
	for i, id := range ids {
		pointers[i] = tensors[id]
	}
	b := l.newDescriptorBuilder()
	d := b.newDescriptor(DescPack)
	b.setInts(d, AttrPackIDs, ids...)
	b.setAttribute(d, AttrPackPointers, TypeVoidPtr, len(pointers), unsafe.Pointer(unsafe.SliceData(pointers)))
	b.setAttribute(d, AttrPackWorkspace, TypeVoidPtr, 1, unsafe.Pointer(&workspace))
	b.finalize(d, "variant pack")
	if b.err != nil {
		return nil, errors.Join(b.err, b.release())
	}
	return &VariantPack{b: b, desc: d}, nil
}

// Close destroys the pack.
func (p *VariantPack) Close() error { return p.b.release() }

// Run executes a plan on the handle's stream.
func (l *Library) Run(h Handle, p *Plan, pack *VariantPack) error {
	if s := l.Execute(h, p.desc, pack.desc); s != Success {
		return l.checkStatus("cudnnBackendExecute of "+p.String(), s)
	}
	return nil
}
