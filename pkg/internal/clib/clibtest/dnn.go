package clibtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
)

type cudnnSimulator struct {
	m       *Machine
	handles map[cudnn.Handle]*cuda.Stream
	all     map[cudnn.Descriptor]*descriptor
	last    string // message of the last error
	plans   int    // number of plans created so far
}

// descriptor is an object of cuDNN's backend API, with the attributes that were set.
type descriptor struct {
	kind      cudnn.DescriptorType
	attrs     map[cudnn.Attribute]attributeValue
	finalized bool
	engine    *cudnnEngine // for engines, engine configurations and plans
	ops       []*operation
	plan      string
	loaded    bool // for plans: has run at least once
}

// attributeValue contains the n elements of an attribute as bytes.
type attributeValue struct {
	kind cudnn.AttributeType
	n    int64
	raw  []byte
}

// attributeSpec describes the valid values of an attribute.
type attributeSpec struct {
	kind     cudnn.AttributeType
	most     int64 // maximum number of elements
	required bool
	refers   []cudnn.DescriptorType // for descriptors: the valid types
}

func newCUDNNSimulator(m *Machine) *cudnnSimulator {
	return &cudnnSimulator{m: m, handles: map[cudnn.Handle]*cuda.Stream{}, all: map[cudnn.Descriptor]*descriptor{}}
}

func attributeElementSize(t cudnn.AttributeType) int64 {
	switch t {
	case cudnn.TypeBoolean, cudnn.TypeChar:
		return 1
	case cudnn.TypeHandle, cudnn.TypeInt64, cudnn.TypeDouble, cudnn.TypeVoidPtr, cudnn.TypeDescriptor:
		return 8
	}
	return 4
}

// attributeSpecs returns the attributes of a descriptor type, or nil if the type is not
// simulated.
func attributeSpecs(t cudnn.DescriptorType) map[cudnn.Attribute]attributeSpec {
	tensor := []cudnn.DescriptorType{cudnn.DescTensor}
	one := func(kind cudnn.AttributeType) attributeSpec {
		return attributeSpec{kind: kind, most: 1, required: true}
	}
	ref := func(d ...cudnn.DescriptorType) attributeSpec {
		return attributeSpec{kind: cudnn.TypeDescriptor, most: 1, required: true, refers: d}
	}
	list := func(most int64) attributeSpec {
		return attributeSpec{kind: cudnn.TypeInt64, most: most, required: true}
	}
	optional := func(s attributeSpec) attributeSpec { s.required = false; return s }
	conv := []cudnn.DescriptorType{cudnn.DescConvolution}
	convOp := func(alpha, beta, c, a, b, d cudnn.Attribute) map[cudnn.Attribute]attributeSpec {
		return map[cudnn.Attribute]attributeSpec{
			alpha: one(cudnn.TypeFloat), beta: one(cudnn.TypeFloat), c: ref(conv...),
			a: ref(tensor...), b: ref(tensor...), d: ref(tensor...),
		}
	}
	switch t {
	case cudnn.DescTensor:
		return map[cudnn.Attribute]attributeSpec{
			cudnn.AttrTensorID: one(cudnn.TypeInt64), cudnn.AttrTensorType: one(cudnn.TypeDataType),
			cudnn.AttrTensorAlignment: one(cudnn.TypeInt64), cudnn.AttrTensorDims: list(8),
			cudnn.AttrTensorStrides: list(8), cudnn.AttrTensorVirtual: optional(one(cudnn.TypeBoolean)),
		}
	case cudnn.DescConvolution:
		return map[cudnn.Attribute]attributeSpec{
			cudnn.AttrConvSpatialDims: one(cudnn.TypeInt64), cudnn.AttrConvCompType: one(cudnn.TypeDataType),
			cudnn.AttrConvMode: one(cudnn.TypeConvolutionMode), cudnn.AttrConvPrePaddings: list(3),
			cudnn.AttrConvPostPaddings: list(3), cudnn.AttrConvDilations: list(3), cudnn.AttrConvStrides: list(3),
		}
	case cudnn.DescConvForward:
		return convOp(cudnn.AttrForwardAlpha, cudnn.AttrForwardBeta, cudnn.AttrForwardConv, cudnn.AttrForwardX, cudnn.AttrForwardW, cudnn.AttrForwardY)
	case cudnn.DescConvData:
		return convOp(cudnn.AttrDataAlpha, cudnn.AttrDataBeta, cudnn.AttrDataConv, cudnn.AttrDataDX, cudnn.AttrDataW, cudnn.AttrDataDY)
	case cudnn.DescConvFilter:
		return convOp(cudnn.AttrFilterAlpha, cudnn.AttrFilterBeta, cudnn.AttrFilterConv, cudnn.AttrFilterX, cudnn.AttrFilterDW, cudnn.AttrFilterDY)
	case cudnn.DescPointwise:
		return map[cudnn.Attribute]attributeSpec{
			cudnn.AttrPointwiseMode: one(cudnn.TypePointwiseMode), cudnn.AttrPointwisePrec: one(cudnn.TypeDataType),
		}
	case cudnn.DescPointwiseOp:
		return map[cudnn.Attribute]attributeSpec{
			cudnn.AttrOpPointwise: ref(cudnn.DescPointwise), cudnn.AttrOpX: ref(tensor...),
			cudnn.AttrOpB: optional(ref(tensor...)), cudnn.AttrOpY: optional(ref(tensor...)),
			cudnn.AttrOpDX: optional(ref(tensor...)), cudnn.AttrOpDY: optional(ref(tensor...)),
			cudnn.AttrOpAlpha1: optional(one(cudnn.TypeFloat)), cudnn.AttrOpAlpha2: optional(one(cudnn.TypeFloat)),
		}
	case cudnn.DescGenstats:
		return map[cudnn.Attribute]attributeSpec{
			cudnn.AttrGenstatsMode: one(cudnn.TypeGenstatsMode), cudnn.AttrGenstatsPrec: one(cudnn.TypeDataType),
			cudnn.AttrGenstatsX: ref(tensor...), cudnn.AttrGenstatsSum: ref(tensor...), cudnn.AttrGenstatsSqSum: ref(tensor...),
		}
	case cudnn.DescBNBackwardWeights:
		all := map[cudnn.Attribute]attributeSpec{cudnn.AttrBNBackwardPrec: one(cudnn.TypeDataType)}
		for name := cudnn.AttrBNBackwardMean; name <= cudnn.AttrBNBackwardEqBias; name++ {
			all[name] = ref(tensor...)
		}
		return all
	}
	return graphAttributeSpecs(t)
}

// graphAttributeSpecs is attributeSpecs for graphs and the descriptors made from them, such as
// plans.
func graphAttributeSpecs(t cudnn.DescriptorType) map[cudnn.Attribute]attributeSpec {
	one := func(kind cudnn.AttributeType, d ...cudnn.DescriptorType) attributeSpec {
		return attributeSpec{kind: kind, most: 1, required: true, refers: d}
	}
	switch t {
	case cudnn.DescGraph:
		ops := one(cudnn.TypeDescriptor, cudnn.DescConvForward, cudnn.DescConvData, cudnn.DescConvFilter, cudnn.DescPointwiseOp, cudnn.DescGenstats, cudnn.DescBNBackwardWeights)
		ops.most = 64
		return map[cudnn.Attribute]attributeSpec{cudnn.AttrGraphHandle: one(cudnn.TypeHandle), cudnn.AttrGraphOps: ops}
	case cudnn.DescEngineHeur:
		return map[cudnn.Attribute]attributeSpec{
			cudnn.AttrHeurGraph: one(cudnn.TypeDescriptor, cudnn.DescGraph), cudnn.AttrHeurMode: one(cudnn.TypeHeurMode),
		}
	case cudnn.DescPlan:
		config, text := one(cudnn.TypeDescriptor, cudnn.DescEngineConfig), one(cudnn.TypeChar)
		config.required, text.required, text.most = false, false, math.MaxInt64 // one of the two is required
		return map[cudnn.Attribute]attributeSpec{
			cudnn.AttrPlanHandle: one(cudnn.TypeHandle), cudnn.AttrPlanConfig: config, cudnn.AttrPlanJSON: text,
		}
	case cudnn.DescPack:
		ids, pointers, workspace := one(cudnn.TypeInt64), one(cudnn.TypeVoidPtr), one(cudnn.TypeVoidPtr)
		ids.most, pointers.most, workspace.required = 64, 64, false
		return map[cudnn.Attribute]attributeSpec{
			cudnn.AttrPackIDs: ids, cudnn.AttrPackPointers: pointers, cudnn.AttrPackWorkspace: workspace,
		}
	case cudnn.DescDeviceProperties:
		return map[cudnn.Attribute]attributeSpec{cudnn.AttrDeviceHandle: one(cudnn.TypeHandle)}
	case cudnn.DescEngine:
		return map[cudnn.Attribute]attributeSpec{
			cudnn.AttrEngineGraph: one(cudnn.TypeDescriptor, cudnn.DescGraph), cudnn.AttrEngineIndex: one(cudnn.TypeInt64),
		}
	case cudnn.DescKnobChoice:
		return map[cudnn.Attribute]attributeSpec{cudnn.AttrKnobType: one(cudnn.TypeKnobType), cudnn.AttrKnobValue: one(cudnn.TypeInt64)}
	case cudnn.DescEngineConfig:
		knobs := one(cudnn.TypeDescriptor, cudnn.DescKnobChoice)
		knobs.required, knobs.most = false, 64
		return map[cudnn.Attribute]attributeSpec{
			cudnn.AttrConfigEngine: one(cudnn.TypeDescriptor, cudnn.DescEngine), cudnn.AttrConfigKnobs: knobs,
		}
	}
	return nil
}

// CUDNN returns the machine's simulated cuDNN.
func (m *Machine) CUDNN() *cudnn.Library {
	d := m.dnn
	l := &cudnn.Library{Path: simulatedLibraryPath, Version: func() int { return m.opt.CUDNNVersion }}
	// locked calls f under the machine's lock, unless the device is lost.
	locked := func(f func() cudnn.Status) cudnn.Status {
		m.mu.Lock()
		defer m.mu.Unlock()
		if err := m.checkCall("cudnn", true); err != nil {
			d.last = err.Error()
			if m.lost != nil {
				return cudnn.ExecutionFailedDriver
			}
			return cudnn.NotInitialized
		}
		return f()
	}
	asError := func(call string, s cudnn.Status) error {
		if s == cudnn.Success {
			return nil
		}
		return &cudnn.Error{Call: call, Result: s, Message: l.LastError()}
	}
	l.LastError = func() string {
		m.mu.Lock()
		defer m.mu.Unlock()
		return d.last
	}
	l.Create = func() (h cudnn.Handle, err error) {
		s := locked(func() cudnn.Status {
			n, name := m.newHandle("cudnn")
			h = cudnn.Handle(n)
			d.handles[h] = new(cuda.Stream)
			m.logCall("cudnnCreate = %s", name)
			return cudnn.Success
		})
		return h, asError("cudnnCreate", s)
	}
	l.Destroy = func(h cudnn.Handle) error {
		return asError("cudnnDestroy", locked(func() cudnn.Status {
			if d.handles[h] == nil {
				return d.failWithStatus(cudnn.BadParam, "unknown handle")
			}
			m.logCall("cudnnDestroy %s", m.handleName(uintptr(h)))
			delete(d.handles, h)
			return cudnn.Success
		}))
	}
	l.SetStream = func(h cudnn.Handle, s cuda.Stream) error {
		return asError("cudnnSetStream", locked(func() cudnn.Status {
			if d.handles[h] == nil || m.byStream[s] == nil {
				return d.failWithStatus(cudnn.BadParam, "unknown handle or stream")
			}
			m.logCall("cudnnSetStream %s, %s", m.handleName(uintptr(h)), m.streamName(s))
			*d.handles[h] = s
			return cudnn.Success
		}))
	}
	l.CreateDescriptor = func(t cudnn.DescriptorType) (out cudnn.Descriptor, s cudnn.Status) {
		s = locked(func() cudnn.Status {
			if attributeSpecs(t) == nil || t == cudnn.DescDeviceProperties && m.opt.CUDNNVersion < 90800 {
				return d.failWithStatus(cudnn.NotSupported, "descriptors of type %d are not simulated", t)
			}
			n, _ := m.newHandle("descriptor")
			out = cudnn.Descriptor(n)
			d.all[out] = &descriptor{kind: t, attrs: map[cudnn.Attribute]attributeValue{}}
			return cudnn.Success
		})
		return out, s
	}
	l.DestroyDescriptor = func(x cudnn.Descriptor) cudnn.Status {
		return locked(func() cudnn.Status {
			if d.all[x] == nil {
				return d.failWithStatus(cudnn.NullPointer, "unknown descriptor")
			}
			delete(d.all, x)
			return cudnn.Success
		})
	}
	l.SetAttribute = func(x cudnn.Descriptor, name cudnn.Attribute, t cudnn.AttributeType, n int64, p unsafe.Pointer) cudnn.Status {
		return locked(func() cudnn.Status { return d.setAttribute(x, name, t, n, p) })
	}
	l.GetAttribute = func(x cudnn.Descriptor, name cudnn.Attribute, t cudnn.AttributeType, want int64, got *int64, p unsafe.Pointer) cudnn.Status {
		return locked(func() cudnn.Status { return d.getAttribute(x, name, t, want, got, p) })
	}
	l.Finalize = func(x cudnn.Descriptor) cudnn.Status {
		return locked(func() cudnn.Status { return d.finalizeDescriptor(x) })
	}
	l.Execute = func(h cudnn.Handle, plan, pack cudnn.Descriptor) cudnn.Status {
		return locked(func() cudnn.Status { return d.executePlan(h, plan, pack) })
	}
	return l
}

func (d *cudnnSimulator) failWithStatus(s cudnn.Status, format string, args ...any) cudnn.Status {
	d.last = fmt.Sprintf(format, args...)
	return s
}

func (d *cudnnSimulator) setAttribute(x cudnn.Descriptor, name cudnn.Attribute, t cudnn.AttributeType, n int64, p unsafe.Pointer) cudnn.Status {
	desc := d.all[x]
	if desc == nil || p == nil {
		return d.failWithStatus(cudnn.NullPointer, "attribute %d: the descriptor is unknown or there are no values", name)
	}
	s, ok := attributeSpecs(desc.kind)[name]
	switch {
	case desc.finalized:
		return d.failWithStatus(cudnn.BadParam, "attribute %d: the descriptor is already finalized", name)
	case !ok:
		return d.failWithStatus(cudnn.BadParam, "descriptors of type %d have no attribute %d", desc.kind, name)
	case t != s.kind:
		return d.failWithStatus(cudnn.WrongAttributeType, "attribute %d has type %d, not %d", name, s.kind, t)
	case n < 1 || n > s.most:
		return d.failWithStatus(cudnn.OutOfBound, "attribute %d has 1 to %d values, not %d", name, s.most, n)
	}
	raw := slices.Clone(unsafe.Slice((*byte)(p), n*attributeElementSize(t)))
	if t == cudnn.TypeDescriptor {
		for i := range n {
			other := d.all[cudnn.Descriptor(binary.LittleEndian.Uint64(raw[8*i:]))]
			switch {
			case other == nil:
				return d.failWithStatus(cudnn.NullPointer, "attribute %d: value %d is not a descriptor", name, i)
			case !slices.Contains(s.refers, other.kind):
				return d.failWithStatus(cudnn.WrongDescriptorType, "attribute %d cannot be a descriptor of type %d", name, other.kind)
			case !other.finalized:
				return d.failWithStatus(cudnn.NotFinalized, "attribute %d: the descriptor that it refers to is not finalized", name)
			}
		}
	}
	desc.attrs[name] = attributeValue{kind: t, n: n, raw: raw}
	return cudnn.Success
}

func (desc *descriptor) int64Values(name cudnn.Attribute) []int64 {
	v := desc.attrs[name]
	out := make([]int64, v.n)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(v.raw[8*i:]))
	}
	return out
}

func (desc *descriptor) int64Value(name cudnn.Attribute) int64 { return desc.int64Values(name)[0] }

func (desc *descriptor) int32Value(name cudnn.Attribute) int32 {
	return int32(binary.LittleEndian.Uint32(desc.attrs[name].raw))
}

func (desc *descriptor) float32Value(name cudnn.Attribute) float32 {
	return math.Float32frombits(uint32(desc.int32Value(name)))
}

func (desc *descriptor) boolValue(name cudnn.Attribute) bool {
	v := desc.attrs[name]
	return v.n > 0 && v.raw[0] != 0
}

func (d *cudnnSimulator) referencedDescriptors(desc *descriptor, name cudnn.Attribute) []*descriptor {
	var out []*descriptor
	for _, v := range desc.int64Values(name) {
		out = append(out, d.all[cudnn.Descriptor(v)])
	}
	return out
}

func (d *cudnnSimulator) referencedDescriptor(desc *descriptor, name cudnn.Attribute) *descriptor {
	if _, ok := desc.attrs[name]; !ok {
		return nil
	}
	return d.referencedDescriptors(desc, name)[0]
}

func (d *cudnnSimulator) finalizeDescriptor(x cudnn.Descriptor) cudnn.Status {
	desc := d.all[x]
	if desc == nil {
		return d.failWithStatus(cudnn.NullPointer, "unknown descriptor")
	}
	if desc.finalized {
		return d.failWithStatus(cudnn.BadParam, "the descriptor is already finalized")
	}
	for name, s := range attributeSpecs(desc.kind) {
		if _, ok := desc.attrs[name]; s.required && !ok {
			return d.failWithStatus(cudnn.BadParam, "attribute %d of a descriptor of type %d is not set", name, desc.kind)
		}
	}
	status := cudnn.Success
	switch desc.kind {
	case cudnn.DescTensor:
		status = d.finalizeTensor(desc)
	case cudnn.DescConvolution:
		status = d.finalizeConvolution(desc)
	case cudnn.DescConvForward, cudnn.DescConvData, cudnn.DescConvFilter, cudnn.DescPointwiseOp, cudnn.DescGenstats, cudnn.DescBNBackwardWeights:
		status = d.finalizeOperation(desc)
	case cudnn.DescGraph:
		status = d.finalizeOperationGraph(desc)
	case cudnn.DescEngineConfig:
		status = d.finalizeEngineConfig(desc)
	case cudnn.DescPlan:
		status = d.finalizeExecutionPlan(desc)
	case cudnn.DescPack:
		ids := desc.int64Values(cudnn.AttrPackIDs)
		slices.Sort(ids)
		if len(slices.Compact(ids)) != int(desc.attrs[cudnn.AttrPackPointers].n) {
			status = d.failWithStatus(cudnn.DuplicatedEntries, "a pack must have one distinct ID per address")
		}
	}
	desc.finalized = status == cudnn.Success
	return status
}

func (d *cudnnSimulator) finalizeTensor(desc *descriptor) cudnn.Status {
	dims, strides := desc.int64Values(cudnn.AttrTensorDims), desc.int64Values(cudnn.AttrTensorStrides)
	align := desc.int64Value(cudnn.AttrTensorAlignment)
	switch {
	case len(dims) != len(strides):
		return d.failWithStatus(cudnn.BadParam, "tensor has %d dimensions but %d strides", len(dims), len(strides))
	case slices.Min(dims) < 1 || slices.Min(strides) < 0:
		return d.failWithStatus(cudnn.BadParam, "invalid dimensions %v or strides %v", dims, strides)
	case align < 1 || align&(align-1) != 0:
		return d.failWithStatus(cudnn.BadParam, "alignment %d is not a power of two", align)
	}
	return cudnn.Success
}

func (d *cudnnSimulator) finalizeConvolution(desc *descriptor) cudnn.Status {
	n := desc.int64Value(cudnn.AttrConvSpatialDims)
	for _, name := range []cudnn.Attribute{cudnn.AttrConvPrePaddings, cudnn.AttrConvPostPaddings, cudnn.AttrConvDilations, cudnn.AttrConvStrides} {
		if desc.attrs[name].n != n {
			return d.failWithStatus(cudnn.BadParam, "attribute %d has %d values for %d dimensions", name, desc.attrs[name].n, n)
		}
	}
	switch {
	case n < 1 || n > 3:
		return d.failWithStatus(cudnn.BadParam, "invalid number of spatial dimensions %d: want 1 to 3", n)
	case slices.Min(desc.int64Values(cudnn.AttrConvStrides)) < 1 || slices.Min(desc.int64Values(cudnn.AttrConvDilations)) < 1:
		return d.failWithStatus(cudnn.BadParam, "strides and dilations must be at least 1")
	case desc.int32Value(cudnn.AttrConvMode) != 1:
		return d.failWithStatus(cudnn.NotSupported, "only cross-correlation is simulated")
	case cudnn.DataType(desc.int32Value(cudnn.AttrConvCompType)) != cudnn.Float32:
		return d.failWithStatus(cudnn.TypeNotSupported, "only sums in fp32 are simulated")
	}
	return cudnn.Success
}
