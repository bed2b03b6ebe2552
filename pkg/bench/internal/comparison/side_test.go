package comparison

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain demands that processes and goroutines of sides end.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOneWorkerDies: the others, which may wait for it, end too.
func TestOneWorkerDies(t *testing.T) {
	p := Program{Workers: 2, Argv: []string{"sh", "-c", `
		echo '{"name": "half"}'
		if [ "$RANK" = 1 ]; then read -r _; echo "rank 1 gives up" >&2; exit 7; fi
		exec sleep 600`}}
	s, err := Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, err = s.Ask(RequestStep)
	s.Close()
	if err == nil || !strings.Contains(err.Error(), "half (rank 1) ended: exit status 7; last lines of its output:\nrank 1 gives up") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begin); took > closeTimeout {
		t.Errorf("it took %v to end rank 0", took)
	}
}
