package flight

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"lockstep/pkg/internal/wholefile"
)

const (
	// maxStacksBytes limits the stacks of a process; what does not fit is cut off.
	maxStacksBytes = 1 << 20
	// maxFrames is the number of functions in Header.Stack.
	maxFrames = 8
	// maxFrameBytes limits the length of a function in Header.Stack.
	maxFrameBytes = 200
)

// StacksName returns the name of the file with the stacks of a rank's process.
func StacksName(rank int) string { return "stacks-" + strconv.Itoa(rank) + ".txt" }

// Goroutine identifies a goroutine in the stacks of a process, such as "goroutine 12 ".
type Goroutine string

// CurrentGoroutine returns the goroutine that calls it.
func CurrentGoroutine() Goroutine {
	var text [64]byte
	line := text[:runtime.Stack(text[:], false)] // goroutine 12 [running]: …
	number, _, _ := bytes.Cut(line, []byte("["))
	return Goroutine(number)
}

// Stacks contains the stacks of all goroutines of a process at one moment.
type Stacks struct {
	Frames []string // the innermost functions of one of the goroutines, as in Header.Stack
	text   []byte
}

// CaptureStacks returns the stacks of this process. The stack of goroutine g comes first, and
// Frames contains its functions.
func CaptureStacks(g Goroutine) Stacks {
	text := make([]byte, maxStacksBytes)
	text = text[:runtime.Stack(text, true)]
	begin := bytes.Index(text, []byte(g+"["))
	if begin < 0 || begin > 0 && text[begin-1] != '\n' { // it has ended, or was cut off
		return Stacks{text: text}
	}
	own := text[begin:]
	if end := bytes.Index(own, []byte("\n\n")); end >= 0 {
		own = own[:end]
	}
	rest := append(bytes.Clone(text[:begin]), bytes.TrimLeft(text[begin+len(own):], "\n")...)
	return Stacks{Frames: parseFrames(string(own)), text: append(append(bytes.Clone(own), "\n\n"...), rest...)}
}

// parseFrames returns the innermost functions in stack, which has the format of runtime.Stack. It
// omits functions of package runtime.
func parseFrames(stack string) (frames []string) {
	lines := strings.Split(stack, "\n")[1:] // the first one has the goroutine
	for i := 0; i+1 < len(lines) && len(frames) < maxFrames; i += 2 {
		function, place := lines[i], strings.TrimSpace(lines[i+1])
		if strings.HasPrefix(function, "created by ") {
			break
		}
		if end := strings.LastIndexByte(function, '('); end > 0 { // the arguments
			function = function[:end]
		}
		place, _, _ = strings.Cut(place, " +0x")
		function = path.Base(function)
		if strings.HasPrefix(function, "runtime.") {
			continue
		}
		frame := function + " (" + path.Base(place) + ")"
		frames = append(frames, frame[:min(len(frame), maxFrameBytes)])
	}
	return frames
}

// WriteStacks writes the stacks of a rank's process to the run folder dir, in place of earlier ones.
func WriteStacks(dir string, rank int, s Stacks) error {
	return wholefile.Write(filepath.Join(dir, StacksName(rank)), 0o644, func(f *os.File) error {
		_, err := f.Write(s.text)
		return err
	})
}

// FormatStack formats frames, as in Header.Stack, on one line, with the current function first.
func FormatStack(frames []string) string { return strings.Join(frames, " < ") }
