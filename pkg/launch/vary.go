package launch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep/pkg/strategy"
)

// seriesVariant is one series of a sweep.
type seriesVariant struct {
	series string
	set    []string // settings in addition to Sweep.Set
	label  string   // prefix of its output lines; empty if there is only one series
}

// seriesVariants returns the series of s: one for each combination of the strategies and the
// values in Vary. The strategy, then the first key of Vary change slowest. Without
// Strategies and Vary there is one series.
func (s Sweep) seriesVariants() []seriesVariant {
	all := []seriesVariant{{series: s.Series}}
	if len(s.Strategies) > 0 {
		all = nil
	}
	for _, text := range s.Strategies {
		name := strings.Trim(notPlain.ReplaceAllString(text, "-"), "-")
		series := name
		if s.Series != "" {
			series = s.Series + "-" + name
		}
		// validateStrategies has parsed text.
		c, _ := strategy.Parse(text)
		all = append(all, seriesVariant{series: series, set: []string{"strategy=" + c.YAML()}, label: name})
	}
	for _, vary := range s.Vary {
		key, values := splitVary(vary)
		_, short, _ := cutLast(key, ".")
		var next []seriesVariant
		for _, v := range all {
			for _, value := range values {
				name := short + "-" + strings.Trim(notPlain.ReplaceAllString(value, "-"), "-")
				next = append(next, seriesVariant{
					series: v.series + "-" + name,
					set:    append(append([]string{}, v.set...), key+"="+value),
					label:  strings.TrimSpace(v.label + " " + name),
				})
			}
		}
		all = next
	}
	return all
}

// cutLast splits s at the last sep, like strings.Cut. If s does not contain sep, after is s.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

// splitVary splits an element of Sweep.Vary, key=value,value…, into its key and values.
func splitVary(vary string) (key string, values []string) {
	key, list, _ := strings.Cut(vary, "=")
	return key, strings.Split(list, ",")
}

// validateStrategies returns an error if an element of Strategies is no strategy, or if the
// strategy is also set or varied.
func (s Sweep) validateStrategies() error {
	var listed []map[string]any // the settings of each strategy, including defaults
	for _, text := range s.Strategies {
		c, err := strategy.Parse(text)
		if err != nil {
			return err
		}
		equal := func(other map[string]any) bool { return maps.Equal(other, c.Settings()) }
		switch first := slices.IndexFunc(listed, equal); {
		case first >= 0 && s.Strategies[first] == text:
			return fmt.Errorf("strategy %s is listed twice: list each strategy once", text)
		case first >= 0:
			return fmt.Errorf("strategies %s and %s are equal: list each strategy once", s.Strategies[first], text)
		}
		listed = append(listed, c.Settings())
	}
	for _, kv := range slices.Concat(s.Set, s.Vary) {
		if key, _, _ := strings.Cut(kv, "="); len(s.Strategies) > 0 && (key == "strategy" || strings.HasPrefix(key, "strategy.")) {
			return fmt.Errorf("%s is set or varied, but Strategies (--strategies) lists strategies: give options there, as in local_sgd:steps=4", key)
		}
	}
	return nil
}

// validateVary returns an error if an element of Vary has no values or an empty value, if
// its key is also in Set, or if two series would have the same name.
func (s Sweep) validateVary() error {
	for _, vary := range s.Vary {
		if err := validateKey("vary", vary, "key=value,value"); err != nil {
			return err
		}
		key, values := splitVary(vary)
		for _, v := range values {
			if v == "" {
				return fmt.Errorf("vary %q: got an empty value, want key=value,value", vary)
			}
		}
		for _, kv := range s.Set {
			if set, _, _ := strings.Cut(kv, "="); set == key {
				return fmt.Errorf("%s is both set and varied: give it once", key)
			}
		}
	}
	seen := map[string]bool{}
	for _, v := range s.withDefaults().seriesVariants() {
		if seen[v.series] {
			return fmt.Errorf("%s: two series would have the name %s: give each value once", s.describeVariants(), v.series)
		}
		seen[v.series] = true
	}
	return nil
}

// describeVariants describes Strategies and Vary, for error messages.
func (s Sweep) describeVariants() string {
	var parts []string
	if len(s.Strategies) > 0 {
		parts = append(parts, "strategies "+strings.Join(s.Strategies, ","))
	}
	if len(s.Vary) > 0 {
		parts = append(parts, "vary "+strings.Join(s.Vary, " "))
	}
	return strings.Join(parts, ", ")
}

// validateKey checks the key of an element of Set or Vary. assignment is the element, what
// is "set" or "vary", and want is the expected form of the element.
func validateKey(what, assignment, want string) error {
	switch key, _, ok := strings.Cut(assignment, "="); {
	case !ok || key == "":
		return fmt.Errorf("%s %q: expected %s", what, assignment, want)
	case key == "seed" || key == "engine.threads":
		return fmt.Errorf("%s %q: use Seeds (--seeds) and Threads (--threads) instead", what, assignment)
	}
	return nil
}
