package flight

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCaptureStacks captures the stacks while another goroutine waits in a known function, and checks
// that this goroutine comes first.
func TestCaptureStacks(t *testing.T) {
	started, release := make(chan Goroutine), make(chan struct{})
	go waitForRelease(started, release)
	g := <-started
	defer close(release)
	s := CaptureStacks(g)
	dir := t.TempDir()
	if err := WriteStacks(dir, 3, s); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(filepath.Join(dir, "stacks-3.txt"))
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(all), "\n\n")
	if !strings.HasPrefix(first, string(g)) || !strings.Contains(first, "waitForRelease") || !strings.Contains(rest, "TestCaptureStacks") || strings.Contains(rest, "flight.waitForRelease(") {
		t.Errorf("got\n%s", all)
	}
	if len(s.Frames) != 1 || !strings.HasPrefix(s.Frames[0], "flight.waitForRelease (stacks_test.go:") {
		t.Errorf("got the functions %q, want waitForRelease", s.Frames)
	}
	if s := CaptureStacks("goroutine 0 "); s.Frames != nil || len(s.text) == 0 {
		t.Errorf("a goroutine that does not exist: got %q and %d bytes", s.Frames, len(s.text))
	}
}

func waitForRelease(started chan<- Goroutine, release <-chan struct{}) {
	started <- CurrentGoroutine()
	<-release
}

// TestParseFrames checks the functions of a stack as runtime.Stack prints it.
func TestParseFrames(t *testing.T) {
	text := "goroutine 7 [running]:\nruntime.gopark(0x1)\n\t/go/src/runtime/proc.go:1 +0x1\n" +
		"lockstep/pkg/data.(*Loader).next(0xc0001, {0x1, 0x2})\n\t/src/pkg/data/load.go:12 +0x1d\n"
	for i := range maxFrames {
		text += fmt.Sprintf("main.f%d[...](...)\n\t/src/main.go:%d\n", i, i)
	}
	text += "created by main.start in goroutine 1\n\t/src/main.go:99 +0x5"
	got := parseFrames(text)
	if len(got) != maxFrames || !slices.Equal(got[:2], []string{"data.(*Loader).next (load.go:12)", "main.f0[...] (main.go:0)"}) {
		t.Errorf("got %q", got)
	}
	if got := parseFrames("goroutine 7 [running]:\nmain.f()\n\t/main.go:1 +0x5\ncreated by main.start\n\t/main.go:9 +0x5"); !slices.Equal(got, []string{"main.f (main.go:1)"}) {
		t.Errorf("got %q", got)
	}
}
