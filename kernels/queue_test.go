package kernels

import (
	"slices"
	"testing"
)

// After an error the requests that wait are answered with the status aborted, as the protocol's
// stop_on_error says. A later request runs.
func TestStopOnError(t *testing.T) {
	t.Parallel()
	fails := "import \"fmt\"\nfmt.Scanln()\nzero := 0\n1 / zero"
	list := []string{fails, "fmt.Println(2)", "fmt.Println(3)"}
	// ask waits for the input, so that all requests are waiting; the last error comes at once.
	ask := "fmt.Scanln()"
	a := drive(t,
		step{Execute: "import \"fmt\""},
		step{Queue: list},
		step{Execute: "fmt.Println(4)"},
		step{Queue: list, Go: true},
		step{Queue: []string{ask, "fmt.Println(1)", "unknown", "fmt.Println(3)"}},
		step{Queue: []string{ask, "x := ]", "$echo 3"}},
		step{Execute: "fmt.Println(5)"},
	)
	for i, want := range map[int][]string{
		1: {"error", "aborted", "aborted"}, 3: {"error", "ok 2", "ok 3"}, 4: {"ok", "ok 1", "error", "aborted"}, 5: {"ok", "error", "aborted"},
	} {
		if got := a[i].Queue; !slices.Equal(got, want) {
			t.Errorf("step %d: the replies are %q, want %q", i, got, want)
		}
	}
	for i, want := range map[int]string{2: `stdout "4\n"`, 6: `stdout "5\n"`} {
		if got := a[i].show(); got != want {
			t.Errorf("step %d, a later request, shows %q, want %q", i, got, want)
		}
	}
}
