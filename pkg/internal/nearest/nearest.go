// Package nearest suggests a known name for a misspelled one.
package nearest

import "fmt"

// Hint returns " (did you mean x?)", where x is the known name with the smallest edit distance to
// name. It returns "" if this distance is more than half the length of name.
func Hint(name string, known []string) string {
	nearest := FindName(name, known, len(name)/2)
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", nearest)
}

// FindName returns the known name with the smallest edit distance to name, or "" if this distance
// is more than edits.
func FindName(name string, known []string, edits int) string {
	smallest, nearest := edits+1, ""
	for _, k := range known {
		if d := editDistance(name, k); d < smallest {
			smallest, nearest = d, k
		}
	}
	return nearest
}

// editDistance returns the Levenshtein distance of a and b, computed by the Wagner-Fischer
// algorithm with a single row.
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
