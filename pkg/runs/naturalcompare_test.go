package runs

import "testing"

// FuzzNaturalCompare: names have one order, and equal ones are the same.
func FuzzNaturalCompare(f *testing.F) {
	f.Add("2", "10", "9a")
	f.Add("a07", "a7", "a007")
	f.Add("img_2_b", "img_10_a", "")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		ab, ba := NaturalCompare(a, b), NaturalCompare(b, a)
		if (ab == 0) != (a == b) || ab > 0 != (ba < 0) {
			t.Fatalf("%q and %q compare as %d and %d", a, b, ab, ba)
		}
		if ab < 0 && NaturalCompare(b, c) < 0 && NaturalCompare(a, c) >= 0 {
			t.Fatalf("%q < %q < %q, but not the first before the last", a, b, c)
		}
	})
}
