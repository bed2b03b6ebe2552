package cublaslt

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cuda"
)

// Attributes and values that this package sets, from cublasLt.h.
const (
	descTransA   = 3
	descTransB   = 4
	descEpilogue = 7
	descBias     = 8

	preferWorkspace = 1

	epilogueReLU = 2
	epilogueBias = 4
)

// heuristicResult is cublasLtMatmulHeuristicResult_t.
type heuristicResult struct {
	algorithm [8]uint64
	workspace uint64
	status    Status
	waves     float32
	_         [4]int32
}

type matmulFunctions struct {
	descCreate, descDestroy, descSet       uintptr
	layoutCreate, layoutDestroy            uintptr
	preferCreate, preferDestroy, preferSet uintptr
	suggest, multiply                      uintptr
}

func bindMatmul(need func(string) uintptr) *matmulFunctions {
	return &matmulFunctions{
		descCreate: need("cublasLtMatmulDescCreate"), descDestroy: need("cublasLtMatmulDescDestroy"),
		descSet:      need("cublasLtMatmulDescSetAttribute"),
		layoutCreate: need("cublasLtMatrixLayoutCreate"), layoutDestroy: need("cublasLtMatrixLayoutDestroy"),
		preferCreate: need("cublasLtMatmulPreferenceCreate"), preferDestroy: need("cublasLtMatmulPreferenceDestroy"),
		preferSet: need("cublasLtMatmulPreferenceSetAttribute"),
		suggest:   need("cublasLtMatmulAlgoGetHeuristic"), multiply: need("cublasLtMatmul"),
	}
}

func (m *matmulFunctions) newMatrixLayout(t DataType, rows, cols, ld int64) (descriptor, error) {
	var o descriptor
	s := call(m.layoutCreate, uintptr(unsafe.Pointer(&o)), uintptr(t), uintptr(rows), uintptr(cols), uintptr(ld))
	return o, clib.CheckResult("cublasLtMatrixLayoutCreate", s)
}

func (m *matmulFunctions) createMatmulDescriptor(p *Plan) error {
	x := p.matmul
	const scale = Float32
	if s := call(m.descCreate, uintptr(unsafe.Pointer(&p.desc)), uintptr(x.Compute), uintptr(scale)); s != Success {
		return clib.CheckResult("cublasLtMatmulDescCreate", s)
	}
	set := func(name int32, v int32) error {
		return clib.CheckResult(fmt.Sprintf("cublasLtMatmulDescSetAttribute %d", name),
			call(m.descSet, uintptr(p.desc), uintptr(name), uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v)))
	}
	operation := map[bool]int32{false: 0, true: 1} // CUBLAS_OP_N, CUBLAS_OP_T
	epilogue := int32(1)
	if x.ReLU {
		epilogue = epilogueReLU
	}
	if x.Bias != 0 {
		epilogue = epilogue&^1 | epilogueBias
	}
	err := errors.Join(set(descTransA, operation[x.TransA]), set(descTransB, operation[x.TransB]), set(descEpilogue, epilogue))
	if err == nil && x.Bias != 0 {
		bias := x.Bias
		err = clib.CheckResult("cublasLtMatmulDescSetAttribute of the bias",
			call(m.descSet, uintptr(p.desc), descBias, uintptr(unsafe.Pointer(&bias)), unsafe.Sizeof(bias)))
	}
	return err
}

// createMatrixLayouts describes the matrices as they are stored, before they are transposed.
func (m *matmulFunctions) createMatrixLayouts(p *Plan) error {
	x := p.matmul
	stored := func(transposed bool, rows, cols int64) (int64, int64) {
		if transposed {
			return cols, rows
		}
		return rows, cols
	}
	var err error
	rows, cols := stored(x.TransA, x.M, x.K)
	if p.a, err = m.newMatrixLayout(x.TypeA, rows, cols, x.LDA); err != nil {
		return err
	}
	rows, cols = stored(x.TransB, x.K, x.N)
	if p.b, err = m.newMatrixLayout(x.TypeB, rows, cols, x.LDB); err != nil {
		return err
	}
	p.d, err = m.newMatrixLayout(x.TypeD, x.M, x.N, x.LDD)
	return err
}

func (m *matmulFunctions) newPlan(h Handle, x Matmul) (*Plan, error) {
	p := &Plan{matmul: x, alpha: x.Alpha, beta: x.Beta}
	if p.alpha == 0 {
		p.alpha = 1
	}
	err := m.createMatmulDescriptor(p)
	if err == nil {
		err = m.createMatrixLayouts(p)
	}
	if err == nil {
		err = m.chooseAlgorithm(h, p)
	}
	if err != nil {
		return nil, errors.Join(err, m.destroyPlan(p))
	}
	return p, nil
}

func (m *matmulFunctions) chooseAlgorithm(h Handle, p *Plan) (err error) {
	var preference descriptor
	if s := call(m.preferCreate, uintptr(unsafe.Pointer(&preference))); s != Success {
		return clib.CheckResult("cublasLtMatmulPreferenceCreate", s)
	}
	defer func() {
		err = errors.Join(err, clib.CheckResult("cublasLtMatmulPreferenceDestroy", call(m.preferDestroy, uintptr(preference))))
	}()
	limit := p.matmul.WorkspaceLimit
	s := call(m.preferSet, uintptr(preference), preferWorkspace, uintptr(unsafe.Pointer(&limit)), unsafe.Sizeof(limit))
	if s != Success {
		return clib.CheckResult("cublasLtMatmulPreferenceSetAttribute", s)
	}
	var best heuristicResult
	var found int32
	s = call(m.suggest, uintptr(h), uintptr(p.desc), uintptr(p.a), uintptr(p.b), uintptr(p.d), uintptr(p.d),
		uintptr(preference), 1, uintptr(unsafe.Pointer(&best)), uintptr(unsafe.Pointer(&found)))
	if s == Success && found == 0 {
		s = NotSupported
	}
	if s == Success {
		s = best.status
	}
	p.algorithm, p.Workspace = best.algorithm, int64(best.workspace)
	return clib.CheckResult("cublasLtMatmulAlgoGetHeuristic", s)
}

func (m *matmulFunctions) destroyPlan(p *Plan) error {
	var errs []error
	destroy := func(name string, fn uintptr, o *descriptor) {
		if *o != 0 {
			errs = append(errs, clib.CheckResult(name, call(fn, uintptr(*o))))
			*o = 0
		}
	}
	destroy("cublasLtMatmulDescDestroy", m.descDestroy, &p.desc)
	for _, o := range []*descriptor{&p.a, &p.b, &p.d} {
		destroy("cublasLtMatrixLayoutDestroy", m.layoutDestroy, o)
	}
	return errors.Join(errs...)
}

func (m *matmulFunctions) runPlan(h Handle, p *Plan, a, b, d, workspace cuda.Ptr, s cuda.Stream) error {
	r := call(m.multiply, uintptr(h), uintptr(p.desc), uintptr(unsafe.Pointer(&p.alpha)), uintptr(a), uintptr(p.a),
		uintptr(b), uintptr(p.b), uintptr(unsafe.Pointer(&p.beta)), uintptr(d), uintptr(p.d), uintptr(d), uintptr(p.d),
		uintptr(unsafe.Pointer(&p.algorithm)), uintptr(workspace), uintptr(p.Workspace), uintptr(s))
	runtime.KeepAlive(p)
	return clib.CheckResult("cublasLtMatmul", r)
}
