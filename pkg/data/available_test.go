package data_test

import (
	"math"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// TestGeneratorsCheckMemory: a count that no machine can hold is refused before
// memory is taken, with what it needs and what there is.
func TestGeneratorsCheckMemory(t *testing.T) {
	t.Attr("fault", "data.count is 20 million")
	t.Attr("outcome", "It is refused before memory is taken, with the GiB it needs and the GiB there are")
	for _, c := range []struct {
		config data.Config
		needs  string
	}{
		// 2·1024·1024 bytes and 128 each: 39,065 GiB.
		{data.Config{Kind: data.KindCells, Count: 20_000_000, Height: 1024, Width: 1024, TestImages: 1}, "data.count is 20000000 of 1024×1024 pixels, which needs 39064.9 GiB"},
		// 3·1024·1024 bytes and 32 each.
		{data.Config{Kind: data.KindShapes, Count: 20_000_000, Edge: 1024, TestImages: 1}, "data.count is 20000000 of 1024×1024 pixels, which needs 58594.3 GiB"},
		// 36·512³ bytes each.
		{data.Config{Kind: data.KindFields, Count: 20_000_000, Edge: 512, TestImages: 1}, "data.count is 20000000 of 512³ cells, which needs 90000000.0 GiB"},
		// More bytes than an int64 counts.
		{data.Config{Kind: data.KindFields, Count: math.MaxInt, Edge: 512, TestImages: 1}, "GiB of memory"},
	} {
		_, err := data.Open(t.Context(), c.config)
		if err == nil || !strings.Contains(err.Error(), c.needs) || !strings.Contains(err.Error(), " GiB are available") {
			t.Errorf("%s: got error %v, want %q", c.config.Kind, err, c.needs)
		}
	}
}
