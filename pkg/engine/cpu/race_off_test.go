//go:build !race

package cpu

// underRace reports whether the race detector is on.
const underRace = false

// sets are the instruction sets that tests run with; openWith skips those that
// this processor lacks.
var sets = append([]string{"go", wideGo}, assemblySets...)
