package cpu

import (
	"fmt"
	"slices"

	"lockstep/pkg/engine/cpu/internal/layer"
)

// noteRounding records how many operations of a program multiply in bf16, unless the precision
// is fp32.
func (x *executable) noteRounding(b *layer.Builder) {
	if x.engine.options.Precision != bf16 {
		return
	}
	rounded, all := b.CountRounded()
	x.notices = append(x.notices, fmt.Sprintf("precision bf16: %d of %d convolutions, fully connected layers and their gradients round their operands; the others compute in fp32", rounded, all))
}

// Notices implements engine.NoticeReporter.
func (x *executable) Notices() []string { return slices.Clone(x.notices) }
