package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/pkg/scaling"
)

// oldViewFlags contains the flags that --show replaced, one per view. They are hidden, still
// work, and will be removed in the next release.
type oldViewFlags struct {
	explain, overhead, without, timeTo, scalingRule string
	cost, budget                                    float64
	switches                                        map[string]*bool
	chosen                                          func(name string) bool
}

// autoMeasure is the value of the old flag --scaling-rule that selects the first measure
// of quality in the runs.
const autoMeasure = "auto"

// oldFlagNames returns the names of the flags that --show replaced, in the order in which
// an error lists them.
func oldFlagNames() []string {
	return []string{"explain", "fit", "collective", "breakdown", "time-use", "stragglers", "bottleneck", "overhead", "quality", "scaling-rule", "time-to", "cost", "budget", "modes", "epoch-spread"}
}

func (o *oldViewFlags) addTo(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&o.explain, "explain", "", "")
	fs.StringVar(&o.overhead, "overhead", "", "")
	fs.StringVar(&o.without, "without", "", "")
	fs.StringVar(&o.scalingRule, "scaling-rule", "", "")
	fs.Lookup("scaling-rule").NoOptDefVal = autoMeasure
	fs.StringVar(&o.timeTo, "time-to", "", "")
	fs.Float64Var(&o.cost, "cost", 0, "")
	fs.Float64Var(&o.budget, "budget", 0, "")
	o.switches = map[string]*bool{}
	for _, name := range oldFlagNames() {
		if fs.Lookup(name) == nil {
			o.switches[name] = fs.Bool(name, false, "")
		}
		fs.Lookup(name).Hidden = true
	}
	fs.Lookup("without").Hidden = true
	o.chosen = fs.Changed
}

// oldView is a view that was requested by its old flag.
type oldView struct {
	flag  string
	value string
}

// findRequested returns the requested view, or nil if none was requested. It returns an
// error for more than one view and for an invalid value.
func (o *oldViewFlags) findRequested() (*oldView, error) {
	var names []string
	for _, name := range oldFlagNames() {
		if o.chosen(name) {
			names = append(names, "--"+name)
		}
	}
	if len(names) > 1 {
		return nil, fmt.Errorf("%s cannot be combined: use one of them", strings.Join(names, " and "))
	}
	if len(names) == 0 {
		return nil, nil
	}
	x := &oldView{flag: strings.TrimPrefix(names[0], "--")}
	if on := o.switches[x.flag]; on != nil && !*on { // --fit=false
		return nil, nil
	}
	switch x.flag {
	case "explain":
		x.value = o.explain
	case "overhead":
		x.value = o.overhead
	case "scaling-rule":
		if o.scalingRule != autoMeasure {
			x.value = o.scalingRule
		}
	case "time-to":
		x.value = o.timeTo
	case "cost":
		x.value = strconv.FormatFloat(o.cost, 'g', -1, 64)
	case "budget":
		x.value = strconv.FormatFloat(o.budget, 'g', -1, 64)
	}
	return x, nil
}

// write writes the view in the format of the old flag. It writes the results of several
// series one after the other; in CSV, each result has its own header.
func (o *oldViewFlags) write(c *cobra.Command, x *oldView, s *scaling.Study, format string) error {
	results, err := o.compute(c, x, s)
	if err != nil {
		return err
	}
	for i, r := range results {
		if i > 0 && hasNotes(format) {
			fmt.Fprintln(c.OutOrStdout())
		}
		if err := r.Write(c.OutOrStdout(), format); err != nil {
			return err
		}
	}
	if _, breakdown := results[0].(*scaling.Breakdown); breakdown && !hasNotes(format) {
		writeProblems(c.ErrOrStderr(), results[0])
	}
	return nil
}

// compute computes the view x.
func (o *oldViewFlags) compute(c *cobra.Command, x *oldView, s *scaling.Study) ([]viewResult, error) {
	switch x.flag {
	case "explain":
		if _, _, ok := parseMetricAtWorkers(x.value); !ok {
			return nil, asUsageError(fmt.Errorf("--explain %q: want METRIC@WORKERS, such as speedup@14", x.value))
		}
	case "time-to":
		if _, _, ok := parseMetricTarget(x.value); !ok {
			return nil, asUsageError(fmt.Errorf("--time-to %q: want METRIC=VALUE, such as val_loss=0.0075", x.value))
		}
	case "overhead":
		if o.without == "" {
			return nil, asUsageError(fmt.Errorf("--overhead %q: --without SERIES is missing: name the series without communication", x.value))
		}
		r, err := s.Overhead(x.value, o.without)
		if err != nil {
			return nil, err
		}
		return []viewResult{r}, nil
	}
	for _, v := range views() {
		if v.name == x.flag {
			return v.results(s, x.value, c.ErrOrStderr())
		}
	}
	return nil, nil
}
