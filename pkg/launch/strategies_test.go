package launch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestStrategiesAreSeries: each strategy is a series with its options, alternated with the
// others.
func TestStrategiesAreSeries(t *testing.T) {
	s := Sweep{Config: "unet2d-cells", Workers: []int{1, 2}, Oversubscribe: true, Strategies: []string{"ddp", "local_sgd:steps=4", "zero1"}}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	d := s.withDefaults()
	var names []string
	for _, r := range planTestRuns(t, d) {
		names = append(names, fmt.Sprint(r.Name, " ", settingsOf(r)))
	}
	want := []string{
		"ddp-n1-s1 [strategy=ddp]", "local_sgd-steps-4-n1-s1 [strategy={name: local_sgd, steps: 4}]", "zero1-n1-s1 [strategy=zero1]",
		"ddp-n2-s1 [strategy=ddp]", "local_sgd-steps-4-n2-s1 [strategy={name: local_sgd, steps: 4}]", "zero1-n2-s1 [strategy=zero1]",
	}
	if !slices.Equal(names, want) {
		t.Errorf("runs\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
	s.Series, s.Strategies, s.Vary = "mine", []string{"ddp", "zero1"}, []string{"batch=2,4"}
	names = nil
	for _, v := range s.withDefaults().seriesAxes().Variants() {
		names = append(names, fmt.Sprint(v.Series, " ", v.Set))
	}
	want = []string{
		"mine-ddp-batch-2 [strategy=ddp batch=2]", "mine-ddp-batch-4 [strategy=ddp batch=4]",
		"mine-zero1-batch-2 [strategy=zero1 batch=2]", "mine-zero1-batch-4 [strategy=zero1 batch=4]",
	}
	if !slices.Equal(names, want) {
		t.Errorf("series %q, want %q", names, want)
	}
}

func TestStrategiesRefused(t *testing.T) {
	for _, c := range []struct {
		s    Sweep
		want string
	}{
		{Sweep{Config: "unet2d-cells", Strategies: []string{"ddp", "zero"}}, `unknown strategy "zero" (did you mean zero1?)`},
		{Sweep{Config: "unet2d-cells", Strategies: []string{"local_sgd:step=4"}}, `unknown key "strategy.step" (did you mean steps?)`},
		{Sweep{Config: "unet2d-cells", Strategies: []string{"ddp"}, Set: []string{"strategy.steps=4"}}, "strategy.steps is set or varied, but Strategies (--strategies) is also given"},
		{Sweep{Config: "unet2d-cells", Strategies: []string{"ddp", "ddp"}}, "strategy ddp is listed twice: list each strategy once"},
		{Sweep{Config: "unet2d-cells", Strategies: []string{"local_sgd", "zero1", "local_sgd:steps=8"}}, "strategies local_sgd and local_sgd:steps=8 are equal: list each strategy once"},
		{Sweep{Config: "unet2d-cells", Strategies: []string{"ddp", ""}}, `strategy "": got no name`},
		{Sweep{Config: "unet2d-cells", Vary: []string{"model.depth=2,2"}}, "vary model.depth=2,2: two series would have the name"},
		{Sweep{Command: []string{"true"}, Strategies: []string{"ddp"}}, "Strategies (--strategies) cannot be used with the command true, because only Lockstep's own training reads them: pass the values to true"},
	} {
		c.s.Workers = []int{1}
		if err := c.s.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got error %v, want %q", c.s.Strategies, err, c.want)
		}
	}
}

// settingsOf returns the settings in the command of a run.
func settingsOf(r PlannedRun) []string {
	var all []string
	for i, arg := range r.Command {
		if arg == "--set" {
			all = append(all, r.Command[i+1])
		}
	}
	return all
}
