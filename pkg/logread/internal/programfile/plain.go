package programfile

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// PlainKind is the format of lines with a step and a loss, such as "1 8.049097061157227".
const PlainKind = "plain loss lines"

// isPlainLossLog reports whether all complete lines of head consist of two numbers, and path
// satisfies isLossPath.
func isPlainLossLog(path string, head []byte) bool {
	if !isLossPath(path) {
		return false
	}
	n := 0
	for line := range bytes.Lines(head) {
		if !bytes.HasSuffix(line, []byte("\n")) && n > 0 {
			break
		}
		if _, _, ok := parsePlainLine(bytes.TrimRight(line, "\r\n")); !ok {
			return false
		}
		n++
	}
	return n > 0
}

// isLossPath reports whether one of the last three names of path contains loss or losses.
func isLossPath(path string) bool {
	path = record.UncompressedName(path)
	for range 3 {
		words := strings.FieldsFunc(strings.ToLower(filepath.Base(path)), func(r rune) bool { return !unicode.IsLetter(r) })
		if slices.Contains(words, "loss") || slices.Contains(words, "losses") {
			return true
		}
		path = filepath.Dir(path)
	}
	return false
}

// parsePlainLine parses a step and a loss. A finite loss must have a decimal point, so that a
// line of two integers is refused.
func parsePlainLine(line []byte) (step int, v float64, ok bool) {
	c := scan.Cursor{Rest: line}
	step = c.ReadInteger()
	c.Expect(" ")
	point := bytes.IndexByte(c.Rest, '.') >= 0 || bytes.IndexByte(c.Rest, 'n') >= 0
	v = c.ReadFloat()
	return step, v, !c.Failed && len(c.Rest) == 0 && point
}

// readPlainLossLog reads lines with a step and a loss. It returns record.ErrUnknownFormat if any
// line is something else.
func readPlainLossLog(_ context.Context, in *record.Input) ([]*record.Part, error) {
	loss := record.NewCurve("loss", -1, false)
	last, other := -1, false
	err := in.ReadLines(func(l *scan.LineReader, line []byte) {
		step, v, good := parsePlainLine(line)
		switch {
		case !l.Ended:
			in.AddProblem(l.Number, "last line is torn: %.80q", line)
		case !good:
			other = true
		case step <= last:
			in.AddProblem(l.Number, "got step %d after step %d", step, last)
		default:
			loss.AddPoint(int64(step), v, 0)
			last = step
			in.Report.LinesUsed++
			in.Report.Records++
		}
	})
	if err != nil {
		return nil, err
	}
	if other {
		return nil, record.ErrUnknownFormat
	}
	if last < 0 {
		return nil, nil
	}
	in.Report.AddAssumption("the first number of each line is a step, the second its loss: the name says so")
	return []*record.Part{{Run: runs.Run{Curves: []runs.Curve{loss.Finish(in.Report)}}, Role: record.Principal}}, nil
}
