package nearest

import "testing"

func TestHint(t *testing.T) {
	known := []string{"speedup", "efficiency", "iou"}
	for name, want := range map[string]string{
		"spedup": " (did you mean speedup?)", "Iou": " (did you mean iou?)", "eficiency": " (did you mean efficiency?)",
		"timeline": "", "": "",
	} {
		if got := Hint(name, known); got != want {
			t.Errorf("Hint(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"kitten", "sitting", 3}, {"abc", "", 3}, {"flaw", "lawn", 2}} { // the textbook's examples (Wagner and Fischer 1974)
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
