// Package placeholder fills in the placeholders in the arguments of a program that a sweep runs.
package placeholder

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"

	"lockstep/pkg/internal/nearest"
)

// Values contains the values of one run that replace the placeholders.
type Values struct {
	Workers int
	GPUs    int // of all workers; 0 if they have none
	Seed    int64
	Run     string // path of the run folder
}

// placeholderPattern matches a word, or a calculation with words and numbers, in braces, with a
// dollar sign before the braces if there is one. It does not match JSON, regular expressions ({2})
// or a shell's brace expansions.
var placeholderPattern = regexp.MustCompile(`\$?\{+([A-Za-z_]\w*|\w+( *[-+*/%] *\w+)+)\}+`)

// Expand returns args with the values of a run in place of the placeholders {workers}, {gpus},
// {seed} and {run}. {gpus} is an error if the run has no GPUs. {16*workers} is a product, and
// {64/workers} a quotient, which must be a whole number. Any other word or calculation in braces is
// an error. Two braces on each side ({{seed}}, {{word}}) become one, without a replacement. Braces
// after a dollar sign (${seed}), or with other characters in them, such as JSON, stay unchanged.
func Expand(args []string, v Values) ([]string, error) {
	var failed error
	all := make([]string, len(args))
	for i, arg := range args {
		all[i] = placeholderPattern.ReplaceAllStringFunc(arg, func(text string) string {
			inner := strings.Trim(text, "{}")
			opening, closing := strings.Count(text, "{"), strings.Count(text, "}")
			switch {
			case text[0] == '$' || opening != closing:
				return text
			case opening > 1:
				return text[1 : len(text)-1]
			}
			value, err := v.evaluate(inner)
			if err != nil && failed == nil {
				failed = fmt.Errorf("argument %q: %w", arg, err)
			}
			return value
		})
	}
	return all, failed
}

func placeholderNames() []string { return []string{"workers", "gpus", "seed", "run"} }

// evaluate returns the value of a placeholder, given without its braces.
func (v Values) evaluate(text string) (string, error) {
	switch text {
	case "workers":
		return strconv.Itoa(v.Workers), nil
	case "gpus":
		if v.GPUs == 0 {
			return "", errors.New("the run has no GPUs for {gpus}: use {workers}, or ask for GPUs (GPUsPerWorker, --gpus-per-worker), on this machine for one process per run (OneProcess, --processes one)")
		}
		return strconv.Itoa(v.GPUs), nil
	case "seed":
		return strconv.FormatInt(v.Seed, 10), nil
	case "run":
		return v.Run, nil
	}
	left, right, isProduct := strings.Cut(text, "*")
	dividend, divisor, isQuotient := strings.Cut(text, "/")
	switch {
	case isProduct && right == "workers":
		return v.multiplyWorkers(text, left)
	case isProduct && left == "workers":
		return v.multiplyWorkers(text, right)
	case isQuotient && divisor == "workers":
		n, err := parseNumber(text, dividend)
		if err == nil && n%v.Workers != 0 {
			err = fmt.Errorf("%d cannot be divided among %d workers: use a multiple of each worker count", n, v.Workers)
		}
		return strconv.Itoa(n / v.Workers), err
	}
	return "", fmt.Errorf("unknown placeholder {%s}%s: use {workers}, {gpus}, {seed}, {run}, {16*workers} or {64/workers}; {{%s}} stands for the text {%s}", text, nearest.Hint(text, placeholderNames()), text, text)
}

// multiplyWorkers returns the number of workers times factor, a number in the placeholder text.
func (v Values) multiplyWorkers(text, factor string) (string, error) {
	n, err := parseNumber(text, factor)
	if err != nil {
		return "", err
	}
	if high, low := bits.Mul64(uint64(n), uint64(v.Workers)); high != 0 || low > 1<<63-1 {
		return "", fmt.Errorf("the value of {%s} with %d workers is too large", text, v.Workers)
	}
	return strconv.Itoa(n * v.Workers), nil
}

// parseNumber parses decimal digits without leading zeros in the placeholder text.
func parseNumber(text, digits string) (int, error) {
	n, err := strconv.Atoi(digits)
	if err != nil || strconv.Itoa(n) != digits || n < 0 {
		return 0, fmt.Errorf("invalid placeholder {%s}: want a whole number from 0 in decimal digits, got %q", text, digits)
	}
	return n, nil
}
