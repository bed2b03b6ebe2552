package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// skipRule is a line of environment/skips.txt: which tests may be skipped.
type skipRule struct {
	pattern *regexp.Regexp // matches the complete name import/path.TestName/subtest
	reason  string         // part of the text passed to t.Skip
}

// readSkips reads lines of a pattern, a blank and a reason.
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
			return nil, fmt.Errorf("read skips: %s:%d: got %q, want a pattern, a blank and a reason", path, i+1, line)
		}
		re, err := regexp.Compile("^(?:" + pattern + ")$")
		if err != nil {
			return nil, fmt.Errorf("read skips: %s:%d: %w", path, i+1, err)
		}
		rules = append(rules, skipRule{re, reason})
	}
	return rules, nil
}

func isAllowedSkip(rules []skipRule, s skippedTest) bool {
	return slices.ContainsFunc(rules, func(r skipRule) bool {
		return r.pattern.MatchString(s.Name) && strings.Contains(s.Reason, r.reason)
	})
}
