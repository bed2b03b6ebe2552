//go:build !race

package verify

// underRace reports whether the race detector is on. Tests then skip variants that compute other
// numbers but start the same goroutines.
const underRace = false
