package clibtest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
)

// cudnnEngine is one of the simulated engines for a graph. All engines compute the same result.
// They differ in time and workspace, and some of them do not support the graph.
type cudnnEngine struct {
	Index     int64
	workspace int64
	cost      float64      // microseconds
	status    cudnn.Status // of creating a plan
	notes     []int32
	behavior  []int32
	tile      int64 // the value of its only knob, the tile size
}

const fastestEngineNumber = 1

// corruptOutput overwrites one element of the outputs of o that are volumes. Each engine writes a
// different value.
func (d *cudnnSimulator) corruptOutput(engine int64, o *operation, addresses map[int64]uint64) error {
	for _, t := range o.Out {
		if len(t.Dims) != 5 {
			continue
		}
		b, err := d.m.memory.bytesAt(addresses[t.ID], t.extentBytes(), false)
		if err != nil {
			return err
		}
		// The value is 65536 in bf16 and in the upper half of fp32 for the fastest engine.
		copy(b[len(b)-2:], []byte{0x80, 0x46 + byte(engine)})
	}
	return nil
}

// firstExecutionDelayMicroseconds is how much longer the first execution of a plan takes.
const firstExecutionDelayMicroseconds = 5000

const tileSizeKnob = 2

// suggestedEngines returns the engines that a heuristic suggests, with the cases that callers
// must handle. The fastest engine is not the first, one engine is not supported, one cannot be
// compiled, and one is nondeterministic. Modes A and B suggest engine 1 with different tile
// sizes.
func suggestedEngines(mode cudnn.HeurMode) []cudnnEngine {
	plain := cudnnEngine{Index: 0, cost: 10, notes: []int32{cudnn.NoteTensorCore}}
	fast := cudnnEngine{Index: fastestEngineNumber, cost: 5, workspace: 4096, notes: []int32{cudnn.NoteTensorCore}}
	refused := cudnnEngine{Index: 2, cost: 1, status: cudnn.NotSupported}
	atomic := cudnnEngine{Index: 3, cost: 7, workspace: 512, notes: []int32{cudnn.NoteNondeterministic}}
	fallback := cudnnEngine{Index: 40, cost: 50}
	compiled := cudnnEngine{Index: 41, cost: 2, status: cudnn.CompilationFailed, behavior: []int32{cudnn.NoteRuntimeCompilation}}
	switch mode {
	case cudnn.HeurA, cudnn.HeurInstant:
		return []cudnnEngine{plain, refused, fast}
	case cudnn.HeurB:
		fast.tile = 1
		return []cudnnEngine{fast, atomic}
	case cudnn.HeurFallback:
		return []cudnnEngine{compiled, fallback}
	}
	return nil
}

func findEngineByIndex(index int64) *cudnnEngine {
	for _, mode := range []cudnn.HeurMode{cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback} {
		for _, e := range suggestedEngines(mode) {
			if e.Index == index {
				return &e
			}
		}
	}
	return nil
}

type serializedPlan struct {
	Version    int
	Engine     int64
	Operations []*operation
}

func (d *cudnnSimulator) getAttribute(x cudnn.Descriptor, name cudnn.Attribute, t cudnn.AttributeType, want int64, got *int64, p unsafe.Pointer) cudnn.Status {
	desc := d.all[x]
	if desc == nil || got == nil {
		return d.failWithStatus(cudnn.NullPointer, "attribute %d: the descriptor is unknown or there is no address for the count", name)
	}
	// Descriptors that a heuristic has filled are finalized already.
	if !desc.finalized && desc.engine == nil {
		return d.failWithStatus(cudnn.NotFinalized, "attribute %d: the descriptor is not finalized", name)
	}
	out := func(kind cudnn.AttributeType, raw []byte) cudnn.Status {
		if t != kind {
			return d.failWithStatus(cudnn.WrongAttributeType, "attribute %d has type %d, not %d", name, kind, t)
		}
		n := int64(len(raw)) / attributeElementSize(kind)
		*got = n
		if want > 0 && p != nil {
			copy(unsafe.Slice((*byte)(p), want*attributeElementSize(kind)), raw)
		}
		return cudnn.Success
	}
	switch {
	case desc.kind == cudnn.DescEngineHeur && name == cudnn.AttrHeurResults:
		return d.writeSuggestedConfigs(desc, t, want, got, p)
	case desc.kind == cudnn.DescEngineConfig && name == cudnn.AttrConfigEngine && t == cudnn.TypeDescriptor && p != nil:
		e := d.all[*(*cudnn.Descriptor)(p)]
		if e == nil || e.kind != cudnn.DescEngine {
			return d.failWithStatus(cudnn.WrongDescriptorType, "attribute %d: the result must be written to an engine descriptor", name)
		}
		e.engine, e.finalized, *got = desc.engine, true, 1
		return cudnn.Success
	case desc.kind == cudnn.DescEngineConfig && name == cudnn.AttrConfigKnobs && t == cudnn.TypeDescriptor && want > 0 && p != nil:
		k := d.all[*(*cudnn.Descriptor)(p)]
		if k == nil || k.kind != cudnn.DescKnobChoice {
			return d.failWithStatus(cudnn.WrongDescriptorType, "attribute %d: the result must be written to knob choice descriptors", name)
		}
		k.engine, k.finalized, *got = desc.engine, true, 1
		return cudnn.Success
	case desc.kind == cudnn.DescKnobChoice && name == cudnn.AttrKnobType:
		return out(cudnn.TypeKnobType, int32Bytes([]int32{tileSizeKnob}))
	case desc.kind == cudnn.DescKnobChoice && name == cudnn.AttrKnobValue:
		return out(cudnn.TypeInt64, binary.LittleEndian.AppendUint64(nil, uint64(desc.engine.tile)))
	case desc.kind == cudnn.DescEngine && name == cudnn.AttrEngineIndex:
		return out(cudnn.TypeInt64, binary.LittleEndian.AppendUint64(nil, uint64(desc.engine.Index)))
	case desc.kind == cudnn.DescEngine && name == cudnn.AttrEngineNumerical:
		return out(cudnn.TypeNumericalNote, int32Bytes(desc.engine.notes))
	case desc.kind == cudnn.DescEngine && name == cudnn.AttrEngineBehavior:
		return out(cudnn.TypeBehaviorNote, int32Bytes(desc.engine.behavior))
	case desc.kind == cudnn.DescPlan && name == cudnn.AttrPlanWorkspace:
		return out(cudnn.TypeInt64, binary.LittleEndian.AppendUint64(nil, uint64(desc.engine.workspace)))
	case desc.kind == cudnn.DescDeviceProperties && name == cudnn.AttrDeviceJSON:
		text, err := json.Marshal(map[string]any{"name": d.m.opt.Name, "capability": d.m.opt.Capability})
		if err != nil {
			return d.failWithStatus(cudnn.InternalError, "%v", err)
		}
		return out(cudnn.TypeChar, text)
	case desc.kind == cudnn.DescPlan && name == cudnn.AttrPlanJSON:
		text, err := json.Marshal(serializedPlan{d.m.opt.CUDNNVersion, desc.engine.Index, desc.ops})
		if err != nil {
			return d.failWithStatus(cudnn.InternalError, "%v", err)
		}
		return out(cudnn.TypeChar, text)
	}
	return d.failWithStatus(cudnn.NotSupported, "reading attribute %d of a descriptor of type %d is not simulated", name, desc.kind)
}

func int32Bytes(v []int32) []byte {
	var raw []byte
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(x))
	}
	return raw
}

// writeSuggestedConfigs stores the engines that heur suggests in the want engine configurations
// at p. If want is 0 or p is nil, it only sets *got to the number of suggestions.
func (d *cudnnSimulator) writeSuggestedConfigs(heur *descriptor, t cudnn.AttributeType, want int64, got *int64, p unsafe.Pointer) cudnn.Status {
	if t != cudnn.TypeDescriptor {
		return d.failWithStatus(cudnn.WrongAttributeType, "the results of a heuristic are descriptors, not values of type %d", t)
	}
	g := d.referencedDescriptor(heur, cudnn.AttrHeurGraph)
	list := suggestedEngines(cudnn.HeurMode(heur.int32Value(cudnn.AttrHeurMode)))
	if want == 0 || p == nil {
		*got = int64(len(list))
		return cudnn.Success
	}
	configs := unsafe.Slice((*cudnn.Descriptor)(p), want)
	n := min(len(list), len(configs))
	for i := range n {
		c := d.all[configs[i]]
		if c == nil || c.kind != cudnn.DescEngineConfig {
			return d.failWithStatus(cudnn.WrongDescriptorType, "result %d is not an engine configuration", i)
		}
		c.engine, c.ops, c.finalized = &list[i], g.ops, true
	}
	*got = int64(n)
	return cudnn.Success
}

func (d *cudnnSimulator) finalizeEngineConfig(desc *descriptor) cudnn.Status {
	choice := d.referencedDescriptor(desc, cudnn.AttrConfigEngine)
	index, tile := choice.int64Value(cudnn.AttrEngineIndex), int64(0)
	if _, ok := desc.attrs[cudnn.AttrConfigKnobs]; ok {
		for _, k := range d.referencedDescriptors(desc, cudnn.AttrConfigKnobs) {
			if k.int32Value(cudnn.AttrKnobType) != tileSizeKnob {
				return d.failWithStatus(cudnn.NotSupported, "engine %d has no knob %d", index, k.int32Value(cudnn.AttrKnobType))
			}
			tile = k.int64Value(cudnn.AttrKnobValue)
		}
	}
	for _, mode := range []cudnn.HeurMode{cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback} {
		for _, e := range suggestedEngines(mode) {
			if e.Index == index && e.tile == tile {
				desc.engine, desc.ops = &e, d.referencedDescriptor(choice, cudnn.AttrEngineGraph).ops
				return cudnn.Success
			}
		}
	}
	return d.failWithStatus(cudnn.NotSupported, "no engine %d with tile %d", index, tile)
}

func (d *cudnnSimulator) finalizeExecutionPlan(desc *descriptor) cudnn.Status {
	if config := d.referencedDescriptor(desc, cudnn.AttrPlanConfig); config != nil {
		desc.engine, desc.ops = config.engine, config.ops
	} else if text, ok := desc.attrs[cudnn.AttrPlanJSON]; ok {
		var s serializedPlan
		if err := json.Unmarshal(text.raw, &s); err != nil || len(s.Operations) == 0 || findEngineByIndex(s.Engine) == nil {
			return d.failWithStatus(cudnn.BadParam, "the text is not a plan")
		}
		if s.Version != d.m.opt.CUDNNVersion {
			return d.failWithStatus(1003, "the text was written by version %s", cudnn.FormatVersion(s.Version))
		}
		desc.engine, desc.ops = findEngineByIndex(s.Engine), s.Operations
	} else {
		return d.failWithStatus(cudnn.BadParam, "a plan needs an engine configuration or a JSON text")
	}
	if desc.engine.status != cudnn.Success {
		return d.failWithStatus(desc.engine.status, "engine %d does not support this graph", desc.engine.Index)
	}
	if d.m.opt.Gaps == GapsRefused && slices.ContainsFunc(storedTensors(desc.ops), (*tensor).hasGaps) {
		return d.failWithStatus(cudnn.NotSupported, "engine %d does not support tensors with gaps", desc.engine.Index)
	}
	d.plans++
	desc.plan = fmt.Sprintf("plan#%d", d.plans)
	d.m.logCall("cudnn plan: engine %d of %s = %s", desc.engine.Index, describeOps(desc.ops), desc.plan)
	return cudnn.Success
}

func describeOps(ops []*operation) string {
	var words []string
	for _, o := range ops {
		words = append(words, o.String())
	}
	return strings.Join(words, ", ")
}

// executePlan enqueues the plan planned if packed, its variant pack, has valid addresses for all
// tensors.
func (d *cudnnSimulator) executePlan(h cudnn.Handle, planned, packed cudnn.Descriptor) cudnn.Status {
	plan, pack, s := d.all[planned], d.all[packed], d.handles[h]
	switch {
	case plan == nil || pack == nil || s == nil:
		return d.failWithStatus(cudnn.NullPointer, "unknown handle, plan or pack")
	case plan.kind != cudnn.DescPlan || pack.kind != cudnn.DescPack:
		return d.failWithStatus(cudnn.WrongDescriptorType, "got descriptors of types %d and %d, want a plan and a pack", plan.kind, pack.kind)
	case !plan.finalized || !pack.finalized:
		return d.failWithStatus(cudnn.NotFinalized, "the plan or the pack is not finalized")
	}
	at := map[int64]uint64{}
	pointers := pack.attrs[cudnn.AttrPackPointers].raw
	for i, id := range pack.int64Values(cudnn.AttrPackIDs) {
		at[id] = binary.LittleEndian.Uint64(pointers[8*i:])
	}
	var words []string
	for _, t := range storedTensors(plan.ops) {
		p, ok := at[t.ID]
		switch {
		case !ok:
			return d.failWithStatus(cudnn.BadParam, "the pack has no address for tensor %d", t.ID)
		case p == 0:
			return d.failWithStatus(cudnn.NullPointer, "the address of tensor %d is 0", t.ID)
		case p%uint64(t.Align) != 0:
			return d.failWithStatus(cudnn.MisalignedPointer, "tensor %d at %s is not aligned to %d bytes", t.ID, d.m.memory.describeAddress(p), t.Align)
		}
		if _, err := d.m.memory.bytesAt(p, t.extentBytes(), false); err != nil {
			return d.failWithStatus(cudnn.ExecutionFailedDriver, "tensor %d: %v", t.ID, err)
		}
		words = append(words, fmt.Sprintf("%d=%s", t.ID, d.m.memory.describeAddress(p)))
	}
	if status := d.checkWorkspace(plan, pack); status != cudnn.Success {
		return status
	}
	d.m.logCall("cudnnBackendExecute %s %s: %s", plan.plan, d.m.streamName(*s), strings.Join(words, " "))
	ops, label := slices.Clone(plan.ops), "cudnnBackendExecute "+plan.plan
	cost := plan.engine.cost
	if d.m.opt.Gaps == GapsSlow && slices.ContainsFunc(storedTensors(ops), (*tensor).hasGaps) {
		cost *= 100
	}
	if !plan.loaded {
		// The driver loads a kernel at its first launch (CUDA C++ Programming Guide, "Lazy
		// Loading").
		plan.loaded = true
		cost += firstExecutionDelayMicroseconds
	}
	err := d.m.enqueueStreamOp("cudnnBackendExecute", *s, &streamOp{label: label, cost: cost, run: func() error {
		if d.m.opt.Shallow {
			return nil
		}
		if err := d.m.runOperations(ops, at); err != nil {
			return newDriverError(label, cuda.ErrorIllegalAddress, "%v", err)
		}
		if d.m.opt.WrongVolumeEngines == WrongFastest && plan.engine.Index == fastestEngineNumber || d.m.opt.WrongVolumeEngines == WrongAll {
			return d.corruptOutput(plan.engine.Index, ops[len(ops)-1], at)
		}
		return nil
	}})
	if err != nil {
		return d.failWithStatus(cudnn.ExecutionFailedDriver, "%v", err)
	}
	return cudnn.Success
}

func (d *cudnnSimulator) checkWorkspace(plan, pack *descriptor) cudnn.Status {
	need := plan.engine.workspace
	if need == 0 {
		return cudnn.Success
	}
	var p uint64
	if w, ok := pack.attrs[cudnn.AttrPackWorkspace]; ok {
		p = binary.LittleEndian.Uint64(w.raw)
	}
	if p == 0 {
		return d.failWithStatus(cudnn.NullPointer, "%s needs a workspace of %d bytes, but the pack has no workspace", plan.plan, need)
	}
	if _, err := d.m.memory.bytesAt(p, need, false); err != nil {
		return d.failWithStatus(cudnn.ExecutionFailedDriver, "workspace of %d bytes: %v", need, err)
	}
	return cudnn.Success
}
