package weights_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"lockstep/pkg/weights"
)

// countedContext is canceled after its first allowed checks.
type countedContext struct {
	context.Context
	allowed int64
	checks  atomic.Int64
}

func (c *countedContext) Err() error {
	if c.checks.Add(1) > c.allowed {
		return context.Canceled
	}
	return nil
}

// TestReadContext: reading ends between two tensors, and is no damage of the file.
func TestReadContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	var tensors []weights.Tensor
	for i := range 100 {
		tensors = append(tensors, weights.Tensor{Name: fmt.Sprintf("w%03d", i), Shape: []int{2}, F32: []float32{1, 2}})
	}
	if err := weights.Write(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	for _, allowed := range []int64{0, 1, 50} {
		ctx := &countedContext{Context: t.Context(), allowed: allowed}
		f, err := weights.ReadContext(ctx, path)
		var damaged *weights.DamagedError
		if f != nil || !errors.Is(err, context.Canceled) || errors.As(err, &damaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("canceled after %d checks: got %v, error %v", allowed, f, err)
		}
		if more := ctx.checks.Load() - allowed; more > 3 {
			t.Errorf("canceled after %d checks, it checked %d times more", allowed, more)
		}
	}
	if f, err := weights.ReadContext(t.Context(), path); err != nil || len(f.Tensors) != 100 {
		t.Errorf("not canceled: got %v, error %v", f, err)
	}
}
