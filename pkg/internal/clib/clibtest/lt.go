package clibtest

import (
	"fmt"

	"lockstep/pkg/internal/clib/cublaslt"
	"lockstep/pkg/internal/clib/cuda"
)

const matmulFLOPsPerMicrosecond = 2e12

// CublasLt returns the machine's simulated cuBLASLt. It checks the addresses of the
// matrices and advances the clock, but computes nothing.
func (m *Machine) CublasLt() *cublaslt.Library {
	type product struct {
		matmul            cublaslt.Matmul
		bytesA, bytesB, d int64
	}
	plans := map[*cublaslt.Plan]product{}
	size := func(t cublaslt.DataType) int64 {
		if t == cublaslt.Float32 {
			return 4
		}
		return 2
	}
	failed := func(call string, s cublaslt.Status) error { return &cublaslt.Error{Call: call, Result: s} }
	return &cublaslt.Library{
		Path:    simulatedLibraryPath,
		Version: func() int { return 130100 },
		Create:  func() (cublaslt.Handle, error) { return 1, nil },
		Destroy: func(cublaslt.Handle) error { return nil },
		Plan: func(_ cublaslt.Handle, x cublaslt.Matmul) (*cublaslt.Plan, error) {
			mixed := x.Compute == cublaslt.ComputeTF32 && x.TypeA != cublaslt.Float32
			if x.M <= 0 || x.N <= 0 || x.K <= 0 || x.TypeA != x.TypeB || mixed {
				return nil, failed("cublasLtMatmulAlgoGetHeuristic", cublaslt.NotSupported)
			}
			p := &cublaslt.Plan{Workspace: min(x.WorkspaceLimit, 1<<20)}
			plans[p] = product{x, x.M * x.K * size(x.TypeA), x.K * x.N * size(x.TypeB), x.M * x.N * size(x.TypeD)}
			m.logCall("cublasLt plan %d×%d×%d", x.M, x.N, x.K)
			return p, nil
		},
		Close: func(p *cublaslt.Plan) error {
			delete(plans, p)
			return nil
		},
		Run: func(_ cublaslt.Handle, p *cublaslt.Plan, a, b, d, workspace cuda.Ptr, s cuda.Stream) error {
			x, ok := plans[p]
			if !ok {
				return failed("cublasLtMatmul", cublaslt.InvalidValue)
			}
			return m.simulateCall("cublasLtMatmul", true, func() error {
				for _, operand := range []struct {
					at    cuda.Ptr
					bytes int64
				}{{a, x.bytesA}, {b, x.bytesB}, {d, x.d}, {workspace, p.Workspace}} {
					if operand.bytes == 0 {
						continue
					}
					if _, err := m.memory.bytesAt(uint64(operand.at), operand.bytes, false); err != nil {
						return fmt.Errorf("cublasLtMatmul: %w", err)
					}
				}
				cost := 2 * float64(x.matmul.M) * float64(x.matmul.N) * float64(x.matmul.K) / matmulFLOPsPerMicrosecond
				m.logCall("cublasLtMatmul %d×%d×%d in %s", x.matmul.M, x.matmul.N, x.matmul.K, m.streamName(s))
				return m.enqueueStreamOp("cublasLtMatmul", s, &streamOp{label: "cublasLtMatmul", cost: cost, run: func() error { return nil }})
			})
		},
	}
}
