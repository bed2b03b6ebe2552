// Package merge finds evidence that several files are one run, in their paths, and merges the values of
// parts that package identity has decided to be one run. It decides nothing.
package merge
