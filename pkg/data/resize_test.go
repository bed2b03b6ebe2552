package data

import (
	"context"
	"errors"
	"image"
	"testing"

	"lockstep/pkg/data/internal/picture"
)

// TestCanceledWhileResizing: the scaling of a large picture ends with its context.
func TestCanceledWhileResizing(t *testing.T) {
	const edge = 2048
	r := picture.NewResizer(16, edge, edge)
	m := image.NewGray(image.Rect(0, 0, edge, edge))
	if to, err := r.Resize(t.Context(), m); err != nil || to.Bounds().Dx() != 16 {
		t.Fatalf("got %v, %v", to, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Resize(ctx, m); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", err)
	}
}
