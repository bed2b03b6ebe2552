package process

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestCheckThreadLimit: the test runs itself as an ordinary user with a limit, because root has
// none.
func TestCheckThreadLimit(t *testing.T) {
	t.Parallel()
	if os.Getenv("LOCKSTEP_TEST_LIMIT") != "" {
		for _, more := range []int{0, 1000} {
			if err := CheckThreadLimit("/proc", more); err != nil {
				t.Log("refused:", more, err)
			}
		}
		return
	}
	if err := CheckThreadLimit("/proc", 0); err != nil {
		t.Error(err)
	}
	if os.Geteuid() != 0 {
		t.Log("an ordinary user's limit is not lowered")
		return
	}
	c := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "prlimit", "--nproc=900", "/proc/self/exe", "-test.run=TestCheckThreadLimit", "-test.v")
	self, err := os.Open("/proc/self/exe") // its folder may be closed to other users
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	c.ExtraFiles = []*os.File{self}
	c.Args[len(c.Args)-3] = "/proc/self/fd/3"
	c.Env = append(os.Environ(), "LOCKSTEP_TEST_LIMIT=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := string(out); strings.Contains(got, "refused: 0") || !strings.Contains(got, "refused: 1000 the limit on your processes (ulimit -u) allows 900 processes and threads, ") {
		t.Errorf("got %s", got)
	}
}
