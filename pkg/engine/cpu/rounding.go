package cpu

import (
	"fmt"

	"lockstep/pkg/engine/cpu/internal/layer"
)

// addBF16Notice adds a notice if the precision is bf16: how many operations multiply in bf16,
// and whether that is slower than fp32 on this processor.
func (x *executable) addBF16Notice(b *layer.Builder) {
	if x.engine.options.Precision != precisionBF16 {
		return
	}
	rounded, all := b.CountBF16Operations()
	notice := fmt.Sprintf("precision bf16: %d of %d convolutions, fully connected layers and their gradients round their operands; the others compute in fp32", rounded, all)
	if x.engine.kernels.BF16.Slow {
		notice += ". This processor multiplies more slowly in bf16 than in fp32: for speed, use precision fp32"
	}
	x.notices = append(x.notices, notice)
}
