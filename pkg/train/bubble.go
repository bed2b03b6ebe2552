package train

import (
	"context"
	"fmt"
	"strings"

	"lockstep/pkg/strategy"
)

// measureBubbles returns a log line with the part of the epoch's steps in which each stage of a pipeline
// was idle, or "" for other strategies and for a single stage. All ranks must call it after each epoch.
func (t *Trainer) measureBubbles(ctx context.Context) (string, error) {
	m, ok := t.strategy.(strategy.BubbleMeasurer)
	if !ok || t.group.Size() == 1 {
		return "", nil
	}
	own := m.TakeBubble()
	idle := make([]float64, t.group.Size())
	if own.Total > 0 {
		idle[t.group.Rank()] = own.Idle.Seconds() / own.Total.Seconds()
	}
	if err := t.allReduce(ctx, idle); err != nil {
		return "", err
	}
	return formatBubbles(idle, own.Formula), nil
}

func formatBubbles(idle []float64, formula float64) string {
	var list []string
	for _, part := range idle {
		list = append(list, fmt.Sprintf("%.1f %%", 100*part))
	}
	return fmt.Sprintf("pipeline bubble: the stages were idle for %s of the steps; (S−1)/(M+S−1) is %.1f %%", strings.Join(list, ", "), 100*formula)
}
