//go:build race

package verify

// underRace reports whether the race detector is on. Then tests leave out
// variants that differ in their numbers alone and start the same goroutines.
const underRace = true
