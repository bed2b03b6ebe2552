//go:build race

package cpu

// underRace reports whether the race detector is on.
const underRace = true

// sets are the instruction sets that tests run with; openWith skips those that
// this processor lacks. Plain Go with wide tiles shares its work as plain Go does.
var sets = append([]string{"go"}, assemblySets...)
