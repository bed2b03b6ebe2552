// Package english puts numbers into sentences.
package english

import (
	"strconv"
	"strings"
)

// Count returns a number with its noun, in the plural unless n is 1:
// "1 worker", "4 workers", "0 classes", "2 batches", "3 series".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + plural(noun)
}

func plural(noun string) string {
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
