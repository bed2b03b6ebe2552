// Package series names the series of a sweep and their settings: one series for each combination of
// the strategies and the varied settings.
package series

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep/pkg/strategy"
)

// SweepAxes contains the fields of a sweep that determine its series.
type SweepAxes struct {
	Series     string   // the name of the only series, or the first part of the names; may be empty with Strategies
	Strategies []string // each with its options, as strategy.Parse describes
	Vary       []string // each key=value,value…
	Set        []string // the settings of all series, each key=value
}

// Variant is one series of a sweep.
type Variant struct {
	Series string
	Set    []string // settings in addition to Axes.Set
	Label  string   // prefix of its output lines; empty if there is only one series
}

// Variants returns the series, one for each combination of the strategies and the values in Vary.
// The strategy changes slowest, then the value of the first key in Vary. Without Strategies and
// Vary there is one series.
func (a SweepAxes) Variants() []Variant {
	all := []Variant{{Series: a.Series}}
	if len(a.Strategies) > 0 {
		all = nil
	}
	for _, text := range a.Strategies {
		name := strings.Trim(notPlain.ReplaceAllString(text, "-"), "-")
		series := name
		if a.Series != "" {
			series = a.Series + "-" + name
		}
		// validateStrategies has parsed text.
		c, _ := strategy.Parse(text)
		all = append(all, Variant{Series: series, Set: []string{"strategy=" + c.YAML()}, Label: name})
	}
	for _, vary := range a.Vary {
		key, values := parseVaryAssignment(vary)
		_, short, _ := cutLast(key, ".")
		var next []Variant
		for _, v := range all {
			for _, value := range values {
				name := short + "-" + strings.Trim(notPlain.ReplaceAllString(value, "-"), "-")
				next = append(next, Variant{
					Series: v.Series + "-" + name,
					Set:    append(append([]string{}, v.Set...), key+"="+value),
					Label:  strings.TrimSpace(v.Label + " " + name),
				})
			}
		}
		all = next
	}
	return all
}

// cutLast splits s at the last sep, like strings.Cut. Without sep, after is s.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

func parseVaryAssignment(vary string) (key string, values []string) {
	key, list, _ := strings.Cut(vary, "=")
	return key, strings.Split(list, ",")
}

// Validate returns an error if the series cannot be made, or if a setting is both set and varied.
func (a SweepAxes) Validate() error {
	if err := a.validateStrategies(); err != nil {
		return err
	}
	return a.validateVary()
}

// validateStrategies returns an error if Strategies contains an invalid or a duplicate strategy, or
// if Set or Vary also contains a key of the strategy.
func (a SweepAxes) validateStrategies() error {
	var listed []map[string]any // the settings of each strategy, including defaults
	for _, text := range a.Strategies {
		c, err := strategy.Parse(text)
		if err != nil {
			return err
		}
		equal := func(other map[string]any) bool { return maps.Equal(other, c.Settings()) }
		switch first := slices.IndexFunc(listed, equal); {
		case first >= 0 && a.Strategies[first] == text:
			return fmt.Errorf("strategy %s is listed twice: list each strategy once", text)
		case first >= 0:
			return fmt.Errorf("strategies %s and %s are equal: list each strategy once", a.Strategies[first], text)
		}
		listed = append(listed, c.Settings())
	}
	for _, kv := range slices.Concat(a.Set, a.Vary) {
		if key, _, _ := strings.Cut(kv, "="); len(a.Strategies) > 0 && (key == "strategy" || strings.HasPrefix(key, "strategy.")) {
			return fmt.Errorf("%s is set or varied, but Strategies (--strategies) is also given: write the options of a strategy after its name, as in local_sgd:steps=4", key)
		}
	}
	return nil
}

// validateVary returns an error if an element of Vary has no values or an empty value, if its key
// is also in Set, or if two series would have the same name.
func (a SweepAxes) validateVary() error {
	for _, vary := range a.Vary {
		if err := ValidateAssignmentKey("vary", vary, "key=value,value"); err != nil {
			return err
		}
		key, values := parseVaryAssignment(vary)
		for _, v := range values {
			if v == "" {
				return fmt.Errorf("vary %q: got an empty value, want key=value,value", vary)
			}
		}
		for _, kv := range a.Set {
			if set, _, _ := strings.Cut(kv, "="); set == key {
				return fmt.Errorf("%s is both set and varied: give it once", key)
			}
		}
	}
	seen := map[string]bool{}
	for _, v := range a.Variants() {
		if seen[v.Series] {
			return fmt.Errorf("%s: two series would have the name %s: give each value once", a.describeVariants(), v.Series)
		}
		seen[v.Series] = true
	}
	return nil
}

func (a SweepAxes) describeVariants() string {
	var parts []string
	if len(a.Strategies) > 0 {
		parts = append(parts, "strategies "+strings.Join(a.Strategies, ","))
	}
	if len(a.Vary) > 0 {
		parts = append(parts, "vary "+strings.Join(a.Vary, " "))
	}
	return strings.Join(parts, ", ")
}

// ValidateAssignmentKey checks the key of assignment, an element of Set or Vary. what is "set" or "vary", and
// want is the expected form.
func ValidateAssignmentKey(what, assignment, want string) error {
	switch key, _, ok := strings.Cut(assignment, "="); {
	case !ok || key == "":
		return fmt.Errorf("%s %q: expected %s", what, assignment, want)
	case key == "seed" || key == "engine.threads":
		return fmt.Errorf("%s %q: use Seeds (--seeds) and Threads (--threads) instead", what, assignment)
	}
	return nil
}
