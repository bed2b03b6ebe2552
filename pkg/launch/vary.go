package launch

import (
	"fmt"
	"strings"
)

// variant is one series of a sweep.
type variant struct {
	series string
	set    []string // on top of Sweep.Set
	label  string   // of its lines of output; empty where there is one series
}

// variants are the series of s, in the order of their values. The first key of
// Vary changes slowest.
func (s Sweep) variants() []variant {
	all := []variant{{series: s.Series}}
	for _, vary := range s.Vary {
		key, values := splitVary(vary)
		_, short, _ := cutLast(key, ".")
		var next []variant
		for _, v := range all {
			for _, value := range values {
				name := short + "-" + strings.Trim(notPlain.ReplaceAllString(value, "-"), "-")
				next = append(next, variant{
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

// cutLast is strings.Cut at the last sep; without one all is after it.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

func splitVary(vary string) (key string, values []string) {
	key, list, _ := strings.Cut(vary, "=")
	return key, strings.Split(list, ",")
}

// validateVary refuses what names no values, or the same series twice.
func (s Sweep) validateVary() error {
	for _, vary := range s.Vary {
		if err := validateKey("vary", vary, "key=value,value"); err != nil {
			return err
		}
		key, values := splitVary(vary)
		for _, v := range values {
			if v == "" {
				return fmt.Errorf("vary %q: a value is empty: expected key=value,value", vary)
			}
		}
		for _, kv := range s.Set {
			if set, _, _ := strings.Cut(kv, "="); set == key {
				return fmt.Errorf("%s is both set and varied: give it once", key)
			}
		}
	}
	seen := map[string]bool{}
	for _, v := range s.withDefaults().variants() {
		if seen[v.series] {
			return fmt.Errorf("vary %s: two of the series would be named %s: give each value once", strings.Join(s.Vary, " "), v.series)
		}
		seen[v.series] = true
	}
	return nil
}

// validateKey checks the key of a Set or Vary.
func validateKey(what, assignment, want string) error {
	switch key, _, ok := strings.Cut(assignment, "="); {
	case !ok || key == "":
		return fmt.Errorf("%s %q: expected %s", what, assignment, want)
	case key == "seed" || key == "engine.threads":
		return fmt.Errorf("%s %q: a sweep has Seeds (--seeds) and Threads (--threads) for it", what, assignment)
	}
	return nil
}
