package classlist

import "testing"

// FuzzList: any bytes give an error, or labels that are indices of names.
func FuzzList(f *testing.F) {
	f.Add([]byte("(dp0\nVa.png\np1\nI1\nsVb.png\np2\nI0\ns."))
	f.Fuzz(func(t *testing.T, text []byte) {
		if paths, classes, err := Read(text); err == nil {
			names, labels, err := ClassIndices(paths, classes)
			for _, l := range labels {
				if err == nil && int(l) >= len(names) {
					t.Fatalf("class %d of %d", l, len(names))
				}
			}
		}
	})
}
