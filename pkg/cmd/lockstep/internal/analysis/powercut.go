package analysis

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/runs"
)

// powerCutError returns an error if a problem concerns a text file that ends with NUL bytes, as after a power
// cut. The caller has printed the readable part; by the exit code 1 a script notices that rows are lost.
func powerCutError(problems []runs.Problem) error {
	var cut []string
	for _, p := range problems {
		for _, path := range []string{p.File, filepath.Join(p.File, "run.json"), filepath.Join(p.File, "epochs.csv")} {
			if isTextWithNULTail(path) && !slices.Contains(cut, path) {
				cut = append(cut, path)
			}
		}
	}
	if len(cut) == 0 {
		return nil
	}
	more := ""
	if len(cut) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(cut)-1)
	}
	return fmt.Errorf("%s%s ends with NUL bytes, as after a power cut; the complete lines before them were read; restore the file from a backup if there is one", clean.EscapeText(cut[0]), more)
}

// isTextWithNULTail reports whether path is a regular file that ends with at least eight NUL bytes
// and otherwise contains only text or nothing.
func isTextWithNULTail(path string) bool {
	f, err := safeopen.OpenUserFile(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	const tail = 8
	if err != nil || info.Size() < tail {
		return false
	}
	last := make([]byte, tail)
	if _, err := f.ReadAt(last, info.Size()-tail); err != nil || !bytes.Equal(last, make([]byte, tail)) {
		return false
	}
	head := make([]byte, 512)
	n, _ := f.ReadAt(head, 0) // ReadAt returns io.EOF for a short file
	text, rest, _ := bytes.Cut(head[:n], []byte{0})
	return len(text) == 0 || len(bytes.Trim(rest, "\x00")) == 0
}
