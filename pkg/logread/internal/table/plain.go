package table

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// plainKind is a file of lines with a step and a loss, such as "1
// 8.049097061157227".
const plainKind = "plain loss lines"

// isPlain reports whether all whole lines of head have this form.
func isPlain(_ string, head []byte) bool {
	n := 0
	for line := range bytes.Lines(head) {
		if !bytes.HasSuffix(line, []byte("\n")) && n > 0 {
			break
		}
		if _, _, ok := plainLine(bytes.TrimRight(line, "\r\n")); !ok {
			return false
		}
		n++
	}
	return n > 0
}

// plainLine parses a step and a value. The value needs a point unless it is not
// finite, so that two integers are no loss.
func plainLine(line []byte) (step int, v float64, ok bool) {
	c := scan.Cursor{Rest: line}
	step = c.Count()
	c.Expect(" ")
	point := bytes.IndexByte(c.Rest, '.') >= 0 || bytes.IndexByte(c.Rest, 'n') >= 0
	v = c.Float()
	return step, v, !c.Failed && len(c.Rest) == 0 && point
}

// readPlain reads lines of a step and a loss. If a line has another form, the format of the
// file is unknown.
func readPlain(ctx context.Context, in *record.Input) ([]*record.Part, error) {
	l := scan.NewLines(in.Reader, in.Size)
	loss := record.NewCurve("loss", -1, false)
	last := -1
	for {
		line, ok := l.Next()
		if !ok {
			break
		}
		if l.Number&0xffff == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		in.Report.Lines++
		step, v, good := plainLine(line)
		switch {
		case !l.Ended:
			in.Problem(l.Number, "last line is torn: %.80q", line)
		case !good || l.TooLong:
			return nil, record.ErrUnknown
		case step <= last:
			in.Problem(l.Number, "step %d comes after step %d", step, last)
		default:
			loss.Add(int64(step), v, 0)
			last = step
			in.Report.LinesUsed++
			in.Report.Records++
		}
	}
	if l.Err != nil {
		return nil, fmt.Errorf("read %s after line %d: %w", in.Path, l.Number, l.Err)
	}
	if last < 0 {
		return nil, nil
	}
	in.Report.Assume("the second number of each line is a loss, the first its step %s", strconv.Quote("1 8.049"))
	return []*record.Part{{Run: runs.Run{Curves: []runs.Curve{loss.Finish(in.Report)}}, Role: record.Principal}}, nil
}
