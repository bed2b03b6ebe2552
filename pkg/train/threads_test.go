package train

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestThreadsPerCore(t *testing.T) {
	most := ThreadsPerCore * runtime.NumCPU()
	if most >= 1024 {
		most = 1023
	}
	for _, c := range []struct {
		threads       int
		oversubscribe bool
		want          string
	}{
		{most, false, ""},
		{most + 1, true, ""},
		{ThreadsPerCore*runtime.NumCPU() + 1, false, "or allow more with --oversubscribe"},
		{1025, true, "use 1 to 1024"},
		{100_000, true, "use 1 to 1024"},
	} {
		if c.threads > 1024 && c.want != "use 1 to 1024" { // a machine of more than 255 cores
			continue
		}
		_, err := Worker{Config: "unet2d-cells", Threads: c.threads, Oversubscribe: c.oversubscribe}.Resolve()
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) && c.want != "" {
			t.Errorf("%d threads, oversubscribe %v: got error %v, want %q", c.threads, c.oversubscribe, err, c.want)
		}
	}
}
