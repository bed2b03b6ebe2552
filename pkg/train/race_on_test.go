//go:build race

package train

// underRace reports whether the race detector is on. Tests then skip variants that start the
// same goroutines and differ only in numbers.
const underRace = true
