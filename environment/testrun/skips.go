package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// skipRule is a line of environment/skips.txt: tests that may be skipped.
type skipRule struct {
	pattern *regexp.Regexp // matches the whole of import/path.TestName/subtest
	reason  string         // part of what the test says when it skips
}

// readSkips reads the list of allowed skips: a pattern, blanks, a reason.
func readSkips(path string) ([]skipRule, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read skips: %w", err)
	}
	var rules []skipRule
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, reason, _ := strings.Cut(line, " ")
		reason = strings.TrimSpace(reason)
		if reason == "" {
			return nil, fmt.Errorf("read skips: %s:%d: expected a pattern, a blank and a reason, got %q", path, i+1, line)
		}
		re, err := regexp.Compile("^(?:" + pattern + ")$")
		if err != nil {
			return nil, fmt.Errorf("read skips: %s:%d: %w", path, i+1, err)
		}
		rules = append(rules, skipRule{re, reason})
	}
	return rules, nil
}

// listed reports whether a rule allows to skip the test for its reason.
func listed(rules []skipRule, s skip) bool {
	return slices.ContainsFunc(rules, func(r skipRule) bool {
		return r.pattern.MatchString(s.Name) && strings.Contains(s.Reason, r.reason)
	})
}
