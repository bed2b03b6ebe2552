package cudnn

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"unsafe"

	"lockstep/pkg/internal/clib/cuda"
)

// maxConfigs is the number of engine configurations that are requested from one heuristic.
// It returns fewer: cuDNN 9 has some tens of engines for a convolution.
const maxConfigs = 128

// Graph is a finalized graph of operations.
type Graph struct {
	b      *builder
	handle Handle
	desc   Descriptor
}

// NewGraph creates the graph of ops. Close must be called to destroy its descriptors.
func (l *Library) NewGraph(h Handle, ops ...Op) (*Graph, error) {
	b := l.builder()
	var list []Descriptor
	for _, op := range ops {
		list = append(list, op.describe(b))
	}
	d := b.create(DescGraph)
	b.handle(d, AttrGraphHandle, h)
	b.descriptors(d, AttrGraphOps, list...)
	b.finalize(d, "operation graph")
	if b.err != nil {
		return nil, errors.Join(b.err, b.release())
	}
	return &Graph{b: b, handle: h, desc: d}, nil
}

// Close destroys the graph's descriptors. Plans of the graph remain valid.
func (g *Graph) Close() error { return g.b.release() }

// Plan is an executable plan.
type Plan struct {
	Workspace     int64 // bytes that Run needs
	Mode          HeurMode
	Rank          int   // index among the suggestions of Mode
	Engine        int64 // number of the engine, −1 if unknown
	Numerical     []int32
	Behavior      []int32
	Choices       string // the engine and its knobs, for Graph.PlanOf; "" where unknown
	lib           *Library
	desc          Descriptor
	configuration *builder // the descriptors that the plan depends on
}

// Deterministic reports whether the engine computes the same bits every time.
func (p *Plan) Deterministic() bool { return !slices.Contains(p.Numerical, NoteNondeterministic) }

func (p *Plan) String() string {
	return fmt.Sprintf("engine %d (mode %s, place %d, workspace %d bytes)", p.Engine, p.Mode, p.Rank, p.Workspace)
}

// Close destroys the plan.
func (p *Plan) Close() error { return p.configuration.release() }

// Rejected is an engine configuration, or a heuristic, that this machine does not support
// for this graph.
type Rejected struct {
	Mode   HeurMode
	Rank   int // −1: the heuristic returned nothing
	Engine int64
	Err    error
}

// Plans creates a plan for each engine configuration that the modes suggest and the machine
// supports, in this order. It leaves out a configuration that an earlier mode has
// suggested, if the library reports its knobs. It returns an error if the library or the
// device cannot go on, or if there is no plan.
func (g *Graph) Plans(modes ...HeurMode) ([]*Plan, []Rejected, error) {
	return g.PlansAtMost(maxConfigs, modes...)
}

// PlansAtMost is like Plans, but uses only the first n configurations of each mode. The
// plan of a graph with several operations takes about a second, since the graph is compiled
// then.
func (g *Graph) PlansAtMost(n int, modes ...HeurMode) ([]*Plan, []Rejected, error) {
	var plans []*Plan
	var rejected []Rejected
	seen := map[string]bool{}
	for _, mode := range modes {
		more, not, err := g.plansOf(mode, min(n, maxConfigs), seen)
		plans, rejected = append(plans, more...), append(rejected, not...)
		if err != nil {
			return nil, rejected, errors.Join(err, closePlans(plans))
		}
	}
	if len(plans) == 0 {
		err := errors.New("make plans: the library suggests no engine for this graph")
		for _, r := range rejected {
			err = fmt.Errorf("make plans: no engine supports this graph: %w", r.Err)
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

// plansOf creates the plans that one heuristic suggests. It skips configurations in seen,
// whose plans exist already.
func (g *Graph) plansOf(mode HeurMode, most int, seen map[string]bool) (plans []*Plan, rejected []Rejected, err error) {
	lib := g.b.lib
	b := lib.builder()
	defer func() { err = errors.Join(err, b.release()) }()
	heur := b.create(DescEngineHeur)
	b.descriptors(heur, AttrHeurGraph, g.desc)
	b.enum(heur, AttrHeurMode, TypeHeurMode, int32(mode))
	b.finalize(heur, "heuristics")
	if b.err != nil {
		return nil, []Rejected{{Mode: mode, Rank: -1, Engine: -1, Err: b.err}}, fatal(b.err)
	}
	configs := make([]Descriptor, most)
	owners := make([]*builder, most)
	for i := range configs {
		owners[i] = lib.builder()
		configs[i] = owners[i].create(DescEngineConfig)
		if owners[i].err != nil {
			return nil, nil, owners[i].err
		}
	}
	var n int64
	if s := lib.GetAttribute(heur, AttrHeurResults, TypeDescriptor, int64(most), &n, unsafe.Pointer(&configs[0])); s != Success {
		e := lib.failed("cudnnBackendGetAttribute of heuristics "+mode.String(), s)
		rejected, err = []Rejected{{Mode: mode, Rank: -1, Engine: -1, Err: e}}, fatal(e)
		n = 0
	}
	for i, owner := range owners {
		if int64(i) >= n || err != nil {
			err = errors.Join(err, owner.release())
			continue
		}
		choices := lib.choices(configs[i])
		if choices != "" {
			if seen[choices] {
				err = errors.Join(err, owner.release())
				continue
			}
			seen[choices] = true
		}
		p, planErr := lib.planOf(g.handle, owner, configs[i])
		if planErr != nil {
			rejected = append(rejected, Rejected{Mode: mode, Rank: i, Engine: p.Engine, Err: planErr})
			err = errors.Join(fatal(planErr), owner.release())
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

// fatal returns err if the library or the device cannot go on, and nil if err only means
// that one engine or heuristic failed. An engine may reject a parameter, or fail
// internally, where another one succeeds. If all of them fail, Plans returns their errors.
func fatal(err error) error {
	var e *Error
	if errors.As(err, &e) && (e.Result.Unsupported() || (e.Result >= BadParam && e.Result < NotSupported) || (e.Result >= InternalError && e.Result < ExecutionFailed)) {
		return nil
	}
	return err
}

// planOf finalizes the plan of one configuration. If that fails, the plan is returned
// together with the error, because it contains the engine's number.
func (l *Library) planOf(h Handle, b *builder, config Descriptor) (*Plan, error) {
	p := &Plan{lib: l, configuration: b, Engine: -1}
	if err := l.describeEngine(p, config); err != nil {
		return p, err
	}
	p.desc = b.create(DescPlan)
	b.handle(p.desc, AttrPlanHandle, h)
	b.descriptors(p.desc, AttrPlanConfig, config)
	b.finalize(p.desc, fmt.Sprintf("plan of engine %d", p.Engine))
	return p, p.measure()
}

// measure sets Workspace of a finalized plan.
func (p *Plan) measure() error {
	b := p.configuration
	if b.err != nil {
		return b.err
	}
	var n int64
	if s := p.lib.GetAttribute(p.desc, AttrPlanWorkspace, TypeInt64, 1, &n, unsafe.Pointer(&p.Workspace)); s != Success {
		return p.lib.failed("cudnnBackendGetAttribute of the workspace", s)
	}
	return nil
}

// describeEngine sets the engine's number and notes. An engine whose numerical notes cannot
// be read is rejected, since they decide whether it may be used (Deterministic). The other
// attributes are only informative.
func (l *Library) describeEngine(p *Plan, config Descriptor) error {
	b := l.builder()
	engine := b.create(DescEngine)
	defer func() { _ = b.release() }()
	if b.err != nil {
		return b.err
	}
	var n int64
	if s := l.GetAttribute(config, AttrConfigEngine, TypeDescriptor, 1, &n, unsafe.Pointer(&engine)); s != Success {
		return l.failed("cudnnBackendGetAttribute of a configuration's engine", s)
	}
	var index int64
	if l.GetAttribute(engine, AttrEngineIndex, TypeInt64, 1, &n, unsafe.Pointer(&index)) == Success {
		p.Engine = index
	}
	var s Status
	if p.Numerical, s = l.notes(engine, AttrEngineNumerical, TypeNumericalNote); s != Success {
		return l.failed("cudnnBackendGetAttribute of an engine's numerical notes", s)
	}
	p.Behavior, _ = l.notes(engine, AttrEngineBehavior, TypeBehaviorNote)
	return nil
}

func (l *Library) notes(engine Descriptor, name Attribute, t AttributeType) ([]int32, Status) {
	buf := make([]int32, 64) // cuDNN 9 has about ten
	var n int64
	if s := l.GetAttribute(engine, name, t, int64(len(buf)), &n, unsafe.Pointer(&buf[0])); s != Success {
		return nil, s
	}
	return buf[:min(max(n, 0), int64(len(buf)))], Success
}

// JSON returns the plan as text. PlanFromJSON creates the plan again from this text on a
// machine with the same kind of device and the same library version.
func (p *Plan) JSON() (string, error) {
	return p.lib.text(p.desc, AttrPlanJSON, "the plan's text")
}

// DeviceProperties returns cuDNN's description of a handle's device as JSON (cuDNN 9.8 and
// later). With this text cuDNN can compile plans for such a device on a machine without
// one.
func (l *Library) DeviceProperties(h Handle) (text string, err error) {
	b := l.builder()
	defer func() { err = errors.Join(err, b.release()) }()
	d := b.create(DescDeviceProperties)
	b.handle(d, AttrDeviceHandle, h)
	b.finalize(d, "device properties")
	if b.err != nil {
		return "", b.err
	}
	return l.text(d, AttrDeviceJSON, "the device's properties")
}

// text returns the value of an attribute that is a text.
func (l *Library) text(d Descriptor, name Attribute, what string) (string, error) {
	var n int64
	if s := l.GetAttribute(d, name, TypeChar, 0, &n, nil); s != Success {
		return "", l.failed("cudnnBackendGetAttribute of "+what, s)
	}
	if n == 0 {
		return "", nil
	}
	buf := make([]byte, n)
	if s := l.GetAttribute(d, name, TypeChar, n, &n, unsafe.Pointer(&buf[0])); s != Success {
		return "", l.failed("cudnnBackendGetAttribute of "+what, s)
	}
	return trimZero(buf), nil
}

func trimZero(buf []byte) string {
	if i := slices.Index(buf, 0); i >= 0 {
		buf = buf[:i]
	}
	return string(buf)
}

// PlanFromJSON creates a plan from the result of JSON. It returns an error if the text is
// not for this library and device; choose a plan again then.
func (l *Library) PlanFromJSON(h Handle, text string) (*Plan, error) {
	if text == "" {
		return nil, errors.New("read plan: its text is empty")
	}
	b := l.builder()
	p := &Plan{lib: l, configuration: b, Engine: -1, Rank: -1}
	p.desc = b.create(DescPlan)
	b.handle(p.desc, AttrPlanHandle, h)
	buf := []byte(text)
	b.set(p.desc, AttrPlanJSON, TypeChar, len(buf), unsafe.Pointer(&buf[0]))
	b.finalize(p.desc, "plan from text")
	if err := p.measure(); err != nil {
		return nil, errors.Join(err, b.release())
	}
	return p, nil
}

// Pack contains the addresses of a plan's tensors. It can be used for any number of
// executions.
type Pack struct {
	b    *builder
	desc Descriptor
}

// NewPack creates a Pack from the addresses of tensors by ID. workspace may be 0 if the
// plan needs none.
func (l *Library) NewPack(tensors map[int64]cuda.Ptr, workspace cuda.Ptr) (*Pack, error) {
	ids := make([]int64, 0, len(tensors))
	for id := range tensors {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	pointers := make([]cuda.Ptr, len(ids))
	for i, id := range ids {
		pointers[i] = tensors[id]
	}
	b := l.builder()
	d := b.create(DescPack)
	b.ints(d, AttrPackIDs, ids...)
	b.set(d, AttrPackPointers, TypeVoidPtr, len(pointers), unsafe.Pointer(unsafe.SliceData(pointers)))
	b.set(d, AttrPackWorkspace, TypeVoidPtr, 1, unsafe.Pointer(&workspace))
	b.finalize(d, "variant pack")
	if b.err != nil {
		return nil, errors.Join(b.err, b.release())
	}
	return &Pack{b: b, desc: d}, nil
}

// Close destroys the pack.
func (p *Pack) Close() error { return p.b.release() }

// Run executes a plan on the handle's stream.
func (l *Library) Run(h Handle, p *Plan, pack *Pack) error {
	if s := l.Execute(h, p.desc, pack.desc); s != Success {
		return l.failed("cudnnBackendExecute of "+p.String(), s)
	}
	return nil
}
