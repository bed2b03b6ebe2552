package logread

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
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
			wrong = append(wrong, c.checkRunFolder(r.Path)...)
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
	switch {
	case f.shorter && !f.cut && r.Bytes == int64(len(f.bytes)): // too short to show a compression: it is read as a text
		text = f.bytes
	case f.shorter:
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

// checkRunFolder checks that each line of the epochs and steps of a run folder gives a row, or has
// a problem. After the header, or the line of a worker, occurs again, lines replace earlier ones.
func (c misreadChecker) checkRunFolder(dir string) (wrong []string) {
	if slices.ContainsFunc(c.problems, func(p runs.Problem) bool { return p.File == dir }) { // the folder is not read
		return nil
	}
	for _, m := range c.mutants {
		for _, f := range m.files {
			path := filepath.Join(c.dir, f.path)
			name := filepath.Base(path)
			isSteps := strings.HasPrefix(name, "steps-")
			first := []byte("epoch,seconds,samples") // of the header
			if isSteps {
				first = []byte(`{"rank":`)
			}
			if filepath.Dir(path) != dir || !isSteps && name != "epochs.csv" || f.packed != "" || f.again || bytes.Count(f.content, first) != 1 || isSteps && bytes.Count(f.content, []byte(`"world_size":`)) != 1 || len(f.bytes) != len(f.content) {
				continue
			}
			found := map[string]bool{}
			for _, r := range c.rows {
				if r.Run == dir && isSteps && r.Step > 0 && name == fmt.Sprintf("steps-%d.jsonl", r.Rank) || r.Run == dir && !isSteps && r.Step < 0 && r.Epoch > 0 {
					found[fmt.Sprint(r.Epoch, r.Step)] = true
				}
			}
			problems := map[int]bool{}
			for _, p := range c.problems {
				if p.File == path {
					problems[p.Line] = true
				}
			}
			lines := len(bytes.FieldsFunc(f.content, func(c rune) bool { return c == '\n' })) - 1
			if !problems[1] && len(found)+len(problems) < lines {
				wrong = append(wrong, fmt.Sprintf("%s has %d lines after the first; %d are read, and %d have problems", f.path, lines, len(found), len(problems)))
			}
		}
	}
	return wrong
}
