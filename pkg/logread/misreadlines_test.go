package logread

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/record"
)

// checkLines checks that each line of each file is counted, and that each file that was cut has
// a problem.
func (c misreadChecker) checkLines() (wrong []string) {
	for _, r := range c.reports {
		f, _ := c.fileAt(r.Path)
		if f == nil {
			if r.Kind != files.RunFolderKind {
				wrong = append(wrong, "a report of "+r.Path)
			}
			continue
		}
		if f.cut && r.Skipped == "" && len(r.Unused) == 0 && r.Kind != "" {
			wrong = append(wrong, fmt.Sprintf("the end of %s is missing, but the report has no problem:\n%s", f.path, r))
		}
		if hasLines(r) {
			wrong = append(wrong, c.checkCounts(r, f)...)
		}
	}
	return wrong
}

// hasLines reports whether the lines of the file of a report are counted: the file was read and
// is no document, whose values are anywhere in it.
func hasLines(r Report) bool {
	if r.Skipped != "" || r.Kind == "" || strings.HasPrefix(r.Kind, "Jupyter notebook") { // whose lines are those of the outputs
		return false
	}
	isDocument := slices.ContainsFunc(files.Formats(nil), func(f record.Format) bool {
		return f.Name == r.Kind && (f.Document || slices.Contains([]string{"TensorBoard events", "trace"}, f.Name))
	})
	return !isDocument && r.Kind != "configuration"
}

// checkCounts checks the counts of the lines of a file.
func (c misreadChecker) checkCounts(r Report, f *mutatedFile) []string {
	text := f.content
	if f.shorter {
		text = text[:min(int64(len(text)), r.Bytes)]
	}
	want := int64(bytes.Count(text, []byte("\n")))
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		want++
	}
	problems := map[int]bool{}
	for _, p := range r.Unused {
		if p.Line > 0 {
			problems[p.Line] = true
		}
	}
	rest := r.Lines - r.LinesUsed - r.LinesIgnored()
	if r.Lines != want || rest < 0 || rest > int64(len(problems)+r.UnusedMore) {
		return []string{fmt.Sprintf("%s has %d lines; the report counts %d: %d used, %d ignored, %d with problems:\n%s", f.path, want, r.Lines, r.LinesUsed, r.LinesIgnored(), len(problems), r)}
	}
	return nil
}
