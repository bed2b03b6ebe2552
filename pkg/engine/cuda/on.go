package cuda

import (
	"os"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/clib/stack"
)

// NewOn is New with the libraries given: those of a simulated machine, in tests.
func NewOn(s *stack.Stack, o engine.Options, localRank int) (*Engine, error) {
	return start(s, o, localRank, os.Getenv)
}
