// Package english formats numbers, nouns and lists for English sentences.
package english

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// FormatCount formats a number with a noun, which it puts in the plural unless n is 1:
// "1 worker", "4 workers", "0 classes", "2 batches", "3 series".
func FormatCount(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + pluralize(noun)
}

func pluralize(noun string) string {
	for _, end := range []string{"series"} {
		if strings.HasSuffix(noun, end) {
			return noun
		}
	}
	for _, end := range []string{"s", "x", "tch", "sh"} {
		if strings.HasSuffix(noun, end) {
			return noun + "es"
		}
	}
	return noun + "s"
}

// JoinAnd joins words with commas and "and": "1", "1 and 2", "1, 2 and 4".
func JoinAnd(words []string) string { return join(words, " and ") }

// JoinFirstFew is like JoinAnd, but replaces the words after the fourth by their number: "a, b,
// c, d and 7 more".
func JoinFirstFew(words []string) string {
	const most = 4
	if n := len(words) - most; n > 0 {
		words = append(slices.Clone(words[:most]), fmt.Sprintf("%d more", n))
	}
	return JoinAnd(words)
}

// JoinOr joins alternatives with commas and "or": "1", "1 or 2", "1, 2 or 4".
func JoinOr(words []string) string { return join(words, " or ") }

func join(words []string, conjunction string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + conjunction + words[len(words)-1]
}

// QuoteNames puts names in quotes and joins them with commas: `"ddp", "ring"`.
func QuoteNames(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strconv.Quote(n)
	}
	return strings.Join(out, ", ")
}
