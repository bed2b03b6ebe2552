package stage

import (
	"fmt"
	"strings"
	"testing"
)

// describePasses writes a schedule as in the papers, such as "F1 F2 B1 B2".
func describePasses(list []microBatchPass) string {
	var words []string
	for _, p := range list {
		words = append(words, fmt.Sprintf("%s%d", map[bool]string{false: "F", true: "B"}[p.backward], p.batch))
	}
	return strings.Join(words, " ")
}

// TestSchedules: the orders of Narayanan et al. 2019, figure 8 (with a flush), and of Huang et
// al. 2019, figure 2c.
func TestSchedules(t *testing.T) {
	for _, c := range []struct {
		name                   string
		stages, stage, batches int
		want                   string
	}{
		{GPipe, 3, 0, 3, "F1 F2 F3 B1 B2 B3"},
		{GPipe, 3, 2, 3, "F1 F2 F3 B1 B2 B3"},
		{OneForwardOneBackward, 3, 0, 5, "F1 F2 F3 B1 F4 B2 F5 B3 B4 B5"},
		{OneForwardOneBackward, 3, 1, 5, "F1 F2 B1 F3 B2 F4 B3 F5 B4 B5"},
		{OneForwardOneBackward, 3, 2, 5, "F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"},
		{OneForwardOneBackward, 4, 0, 2, "F1 F2 B1 B2"},
		{OneForwardOneBackward, 4, 0, 1, "F1 B1"},
		{OneForwardOneBackward, 1, 0, 2, "F1 B1 F2 B2"},
	} {
		if got := describePasses(stageSchedule(c.name, c.stages, c.stage, c.batches)); got != c.want {
			t.Errorf("%s, stage %d of %d, %d micro-batches: got %s, want %s", c.name, c.stage, c.stages, c.batches, got, c.want)
		}
	}
}

// TestSchedulesEnd: in every schedule, each stage's next pass can run as soon as the passes that
// it needs have run; no two stages wait for each other. With passes of equal times, the bubble
// is that of the formula, and 1F1B keeps fewer micro-batches.
func TestSchedulesEnd(t *testing.T) {
	for _, name := range []string{GPipe, OneForwardOneBackward} {
		for stages := 1; stages <= 5; stages++ {
			for batches := 1; batches <= 7; batches++ {
				ended := map[string]int{} // by pass and stage: the time after which it has run
				rest := make([][]microBatchPass, stages)
				for s := range rest {
					rest[s] = stageSchedule(name, stages, s, batches)
				}
				total := 2 * stages * batches
				slots, kept := 0, make([]int, stages)
				for ; len(ended) < total; slots++ {
					if slots > 2*total {
						t.Fatalf("%s, %d stages, %d micro-batches: the stages wait for each other", name, stages, batches)
					}
					for s := range rest {
						if len(rest[s]) == 0 {
							continue
						}
						p, from := rest[s][0], s-1
						if p.backward {
							from = s + 1
						}
						if at, ok := ended[fmt.Sprint(p, from)]; from >= 0 && from < stages && (!ok || at > slots) {
							continue
						}
						ended[fmt.Sprint(p, s)] = slots + 1
						rest[s] = rest[s][1:]
						if p.backward {
							kept[s]--
						} else if kept[s]++; name == OneForwardOneBackward && kept[s] > stages-s {
							t.Errorf("%d stages, %d micro-batches: stage %d keeps %d", stages, batches, s, kept[s])
						}
					}
				}
				if got, want := 1-float64(2*batches)/float64(slots), Bubble(stages, batches); got-want > 1e-12 || want-got > 1e-12 {
					t.Errorf("%s, %d stages, %d micro-batches: bubble %g, want %g", name, stages, batches, got, want)
				}
			}
		}
	}
}
