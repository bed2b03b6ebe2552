// Package cudnn calls the backend API of cuDNN 9 (libcudnn.so.9). The API consists of six
// functions, to which this package adds a small typed layer.
//
// A caller describes operations on tensors, creates a Graph of one or more of them, asks
// the library's heuristics for engine configurations, creates a Plan for each configuration
// that the machine supports, times the plans, and keeps the fastest:
//
//	g, err := lib.NewGraph(handle, cudnn.ConvForward{Conv: conv, X: x, W: w, Y: y})
//	plans, rejected := g.CreatePlans(cudnn.HeurA, cudnn.HeurB, cudnn.HeurFallback)
//	pack, err := lib.NewVariantPack(map[int64]cuda.Ptr{1: px, 2: pw, 3: py}, workspace)
//	err = lib.Run(handle, plans[0], pack) // on the handle's stream
//
// The dimensions of a tensor are N,C,(D,)H,W, whatever its order in memory, which the
// strides define (ChannelsLastStrides). The dimensions of filters are K,C,(T,)R,S.
//
// According to cuDNN's documentation, a plan may run while its stream is captured into a
// CUDA graph. This was tried only with simulated libraries.
//
// Source: cuDNN documentation, version 9, "Backend API". Every number here and in
// status.go was compared with the headers of cuDNN 9.6.0 and with bindings made
// from those of 9.10 and 9.21.
package cudnn

import (
	"unsafe"

	"lockstep/pkg/internal/clib/cuda"
)

// Handle is cuDNN's state for one CUDA context. Only one thread may use it at a time.
type Handle uintptr

// Descriptor is the handle of an object of the backend API.
type Descriptor uintptr

// DataType is the type of a tensor's elements (cudnnDataType_t).
type DataType int32

// Element types of tensors.
const (
	Float32  DataType = 0
	Float64  DataType = 1
	Float16  DataType = 2
	Int8     DataType = 3
	Int32    DataType = 4
	BFloat16 DataType = 9
	Int64    DataType = 10
	Boolean  DataType = 11
)

// Size returns the size of an element in bytes.
func (t DataType) Size() int64 {
	switch t {
	case Float16, BFloat16:
		return 2
	case Int8, Boolean:
		return 1
	case Float64, Int64:
		return 8
	}
	return 4
}

func (t DataType) String() string {
	switch t {
	case Float32:
		return "fp32"
	case Float64:
		return "fp64"
	case Float16:
		return "fp16"
	case BFloat16:
		return "bf16"
	case Int8:
		return "int8"
	case Int32:
		return "int32"
	case Int64:
		return "int64"
	case Boolean:
		return "bool"
	}
	return "type"
}

// AttributeType is cudnnBackendAttributeType_t, the type of an attribute's elements.
type AttributeType int32

// Attribute types, each with the size of an element in bytes.
const (
	TypeHandle          AttributeType = 0  // 8
	TypeDataType        AttributeType = 1  // 4
	TypeBoolean         AttributeType = 2  // 1
	TypeInt64           AttributeType = 3  // 8
	TypeFloat           AttributeType = 4  // 4
	TypeDouble          AttributeType = 5  // 8
	TypeVoidPtr         AttributeType = 6  // 8
	TypeConvolutionMode AttributeType = 7  // 4
	TypeHeurMode        AttributeType = 8  // 4
	TypeKnobType        AttributeType = 9  // 4
	TypeNumericalNote   AttributeType = 11 // 4
	TypePointwiseMode   AttributeType = 14 // 4
	TypeDescriptor      AttributeType = 15 // 8
	TypeGenstatsMode    AttributeType = 16 // 4
	TypeBehaviorNote    AttributeType = 19 // 4
	TypeChar            AttributeType = 24 // 1
)

// DescriptorType is the type of a descriptor (cudnnBackendDescriptorType_t).
type DescriptorType int32

// Types of descriptors.
const (
	DescPointwise    DescriptorType = 0
	DescConvolution  DescriptorType = 1
	DescEngine       DescriptorType = 2
	DescEngineConfig DescriptorType = 3
	DescEngineHeur   DescriptorType = 4
	DescPlan         DescriptorType = 5
	DescKnobChoice   DescriptorType = 7
	DescConvForward  DescriptorType = 10
	DescConvFilter   DescriptorType = 11
	DescConvData     DescriptorType = 12
	DescPointwiseOp  DescriptorType = 13
	DescGenstats     DescriptorType = 14
	DescGraph        DescriptorType = 15
	DescPack         DescriptorType = 16
	DescTensor       DescriptorType = 17
	// DescBNBackwardWeights is the gradient of a batch norm's parameters.
	DescBNBackwardWeights DescriptorType = 23
	// DescDeviceProperties describes a device (cuDNN 9.8 and later).
	DescDeviceProperties DescriptorType = 38
)

// Attribute names an attribute of a descriptor (cudnnBackendAttributeName_t).
type Attribute int32

// Attributes, grouped by descriptor.
const (
	AttrPointwiseMode Attribute = 0
	AttrPointwisePrec Attribute = 1

	AttrConvCompType     Attribute = 100
	AttrConvMode         Attribute = 101
	AttrConvDilations    Attribute = 102
	AttrConvStrides      Attribute = 103
	AttrConvPostPaddings Attribute = 104
	AttrConvPrePaddings  Attribute = 105
	AttrConvSpatialDims  Attribute = 106

	AttrHeurMode    Attribute = 200
	AttrHeurGraph   Attribute = 201
	AttrHeurResults Attribute = 202

	AttrConfigEngine Attribute = 300
	AttrConfigKnobs  Attribute = 302

	AttrPlanHandle    Attribute = 400
	AttrPlanConfig    Attribute = 401
	AttrPlanWorkspace Attribute = 402
	AttrPlanJSON      Attribute = 405

	AttrKnobType  Attribute = 600
	AttrKnobValue Attribute = 601

	AttrForwardAlpha Attribute = 700
	AttrForwardBeta  Attribute = 701
	AttrForwardConv  Attribute = 702
	AttrForwardW     Attribute = 703
	AttrForwardX     Attribute = 704
	AttrForwardY     Attribute = 705

	AttrDataAlpha Attribute = 706
	AttrDataBeta  Attribute = 707
	AttrDataConv  Attribute = 708
	AttrDataW     Attribute = 709
	AttrDataDX    Attribute = 710
	AttrDataDY    Attribute = 711

	AttrFilterAlpha Attribute = 712
	AttrFilterBeta  Attribute = 713
	AttrFilterConv  Attribute = 714
	AttrFilterDW    Attribute = 715
	AttrFilterX     Attribute = 716
	AttrFilterDY    Attribute = 717

	AttrOpPointwise Attribute = 750
	AttrOpX         Attribute = 751
	AttrOpB         Attribute = 752
	AttrOpY         Attribute = 753
	AttrOpAlpha1    Attribute = 754
	AttrOpAlpha2    Attribute = 755
	AttrOpDX        Attribute = 756
	AttrOpDY        Attribute = 757

	AttrGenstatsMode  Attribute = 770
	AttrGenstatsPrec  Attribute = 771
	AttrGenstatsX     Attribute = 772
	AttrGenstatsSum   Attribute = 773
	AttrGenstatsSqSum Attribute = 774

	AttrGraphHandle Attribute = 800
	AttrGraphOps    Attribute = 801

	AttrTensorAlignment Attribute = 900
	AttrTensorType      Attribute = 901
	AttrTensorDims      Attribute = 902
	AttrTensorStrides   Attribute = 903
	AttrTensorID        Attribute = 906
	AttrTensorVirtual   Attribute = 907

	AttrPackIDs       Attribute = 1000
	AttrPackPointers  Attribute = 1001
	AttrPackWorkspace Attribute = 1003

	AttrDeviceHandle Attribute = 2701
	AttrDeviceJSON   Attribute = 2702

	AttrEngineGraph     Attribute = 1300
	AttrEngineIndex     Attribute = 1301
	AttrEngineNumerical Attribute = 1303
	AttrEngineBehavior  Attribute = 1305

	AttrBNBackwardPrec   Attribute = 1620
	AttrBNBackwardMean   Attribute = 1621
	AttrBNBackwardInvStd Attribute = 1622
	AttrBNBackwardScale  Attribute = 1623
	AttrBNBackwardX      Attribute = 1624
	AttrBNBackwardDY     Attribute = 1625
	AttrBNBackwardDScale Attribute = 1626
	AttrBNBackwardDBias  Attribute = 1627
	AttrBNBackwardEqDY   Attribute = 1628
	AttrBNBackwardEqX    Attribute = 1629
	AttrBNBackwardEqBias Attribute = 1630
)

// HeurMode is cudnnBackendHeurMode_t: the heuristic that suggests engine configurations.
type HeurMode int32

// Heuristics. HeurA and HeurB predict the speed of engines; HeurFallback lists engines that
// always work.
const (
	HeurInstant  HeurMode = 0
	HeurB        HeurMode = 1
	HeurFallback HeurMode = 2
	HeurA        HeurMode = 3
)

func (m HeurMode) String() string {
	switch m {
	case HeurInstant:
		return "instant"
	case HeurB:
		return "B"
	case HeurFallback:
		return "fallback"
	case HeurA:
		return "A"
	}
	return "mode"
}

// PointwiseMode selects the function that a Pointwise computes (cudnnPointwiseMode_t).
type PointwiseMode int32

// Pointwise operations.
const (
	PointwiseAdd      PointwiseMode = 0
	PointwiseMul      PointwiseMode = 1
	PointwiseSub      PointwiseMode = 9
	PointwiseReLU     PointwiseMode = 100
	PointwiseReLUBack PointwiseMode = 200
)

// cuDNN's notes about engines. All are numerical notes, except for NoteRuntimeCompilation.
const (
	NoteTensorCore       int32 = 0
	NoteDownConvert      int32 = 1 // the inputs are rounded to a smaller type
	NoteReducedPrecision int32 = 2 // sums have a lower precision than requested
	NoteNondeterministic int32 = 4
	NoteWinograd         int32 = 5

	NoteRuntimeCompilation int32 = 0 // a behavior note: compiled when the plan is created
)

// Library is the table of cuDNN's functions, each of which returns a Status. The value of an
// attribute is passed as an address, a number of elements and their type.
type Library struct {
	Path string

	Version   func() int // 91900 for 9.19.0
	LastError func() string
	Create    func() (Handle, error)
	Destroy   func(Handle) error
	SetStream func(Handle, cuda.Stream) error

	CreateDescriptor  func(DescriptorType) (Descriptor, Status)
	SetAttribute      func(d Descriptor, name Attribute, t AttributeType, count int64, values unsafe.Pointer) Status
	GetAttribute      func(d Descriptor, name Attribute, t AttributeType, want int64, got *int64, values unsafe.Pointer) Status
	Finalize          func(Descriptor) Status
	Execute           func(h Handle, plan, pack Descriptor) Status
	DestroyDescriptor func(Descriptor) Status
}
