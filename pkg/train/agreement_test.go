package train

import (
	"testing"
	"time"
)

// TestAgreementInterval: ranks that take 30 ms a step ask each other every third
// step, slow ones after each, and nobody waits longer than agreeEvery but for
// the step under way.
func TestAgreementInterval(t *testing.T) {
	for _, c := range []struct {
		name  string
		step  time.Duration
		every int
	}{
		{"30 ms", 30 * time.Millisecond, 3},
		{"400 ms", 400 * time.Millisecond, 1},
		{"1 ms", time.Millisecond, 100},
		{"no time at all", 0, 1},
	} {
		a := agreement{last: 5} // resumed after step 5
		const ranks = 2
		var asked []int
		for step := 6; step <= 5+1+2*c.every; step++ {
			if !a.due(step) {
				continue
			}
			asked = append(asked, step)
			a.plan(step, ranks, ranks*float64(step-a.last)*c.step.Seconds())
		}
		if len(asked) != 3 || asked[0] != 6 || asked[1]-asked[0] != c.every || asked[2]-asked[1] != c.every {
			t.Errorf("%s a step: asked after steps %v, want 6 and then every %d", c.name, asked, c.every)
		}
	}
}
