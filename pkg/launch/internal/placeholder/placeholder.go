// Package placeholder fills in the placeholders in the arguments of a program that a sweep runs.
package placeholder

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Values contains the values of one run that replace the placeholders.
type Values struct {
	Workers int
	Seed    int64
	Run     string // path of the run folder
}

// pattern matches a placeholder with the braces around it, and a dollar sign before it.
var pattern = regexp.MustCompile(`\$?\{+(workers|seed|run|([0-9]{1,9})\*workers|workers\*([0-9]{1,9})|([0-9]{1,9})/workers)\}+`)

// Expand returns args with the values of a run in place of the placeholders {workers}, {seed} and
// {run}. {16*workers} is a product, and {64/workers} a quotient, which must be a whole number. Two
// braces on each side ({{seed}}) become one, without a replacement. A placeholder after a dollar
// sign (${seed}) stays unchanged.
func Expand(args []string, v Values) ([]string, error) {
	var failed error
	all := make([]string, len(args))
	for i, arg := range args {
		all[i] = pattern.ReplaceAllStringFunc(arg, func(text string) string {
			inner := strings.Trim(text, "{}")
			opening, closing := strings.Count(text, "{"), strings.Count(text, "}")
			switch {
			case text[0] == '$' || opening != closing:
				return text
			case opening > 1:
				return text[1 : len(text)-1]
			}
			value, err := v.evaluate(inner)
			if err != nil {
				failed = fmt.Errorf("argument %q: %w", arg, err)
			}
			return value
		})
	}
	return all, failed
}

// evaluate returns the value of a placeholder, given without its braces.
func (v Values) evaluate(text string) (string, error) {
	switch text {
	case "workers":
		return strconv.Itoa(v.Workers), nil
	case "seed":
		return strconv.FormatInt(v.Seed, 10), nil
	case "run":
		return v.Run, nil
	}
	m := pattern.FindStringSubmatch("{" + text + "}")
	if dividend := m[4]; dividend != "" {
		n, err := strconv.Atoi(dividend)
		if err == nil && n%v.Workers != 0 {
			err = fmt.Errorf("%d cannot be divided among %d workers: use a multiple of each worker count", n, v.Workers)
		}
		if err != nil {
			return "", err
		}
		return strconv.Itoa(n / v.Workers), nil
	}
	n, err := strconv.Atoi(m[2] + m[3]) // one of them is empty
	return strconv.Itoa(n * v.Workers), err
}
