// Package nearest finds the name that somebody meant who misspelled one.
package nearest

import "fmt"

// Hint returns " (did you mean x?)" for the known name x with the smallest edit
// distance to name, or nothing if no name is near.
func Hint(name string, known []string) string {
	best, at := len(name)/2+1, ""
	for _, k := range known {
		if d := editDistance(name, k); d < best {
			best, at = d, k
		}
	}
	if at == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", at)
}

// editDistance is Levenshtein's, by the two-row form of the Wagner-Fischer algorithm.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
