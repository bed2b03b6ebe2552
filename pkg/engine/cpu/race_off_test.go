//go:build !race

package cpu

// underRace reports whether the race detector is on.
const underRace = false
