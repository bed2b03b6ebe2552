package logread

import (
	"bytes"
	"context"
	"io"
	"math"
)

// A long text whose rows do not depend on each other is read in pieces, side by
// side; each begins behind a line end.

const (
	leastPiece = 1 << 20 // bytes: less is not worth a goroutine
	mostPieces = 16
	probe      = 1 << 16 // bytes in which a line must end, for a piece to begin there
)

// piece is a stretch of whole lines.
type piece struct {
	from, to int64 // in the file; the last goes on to its end, wherever that is
	lines    float64
}

// pieces cuts the content, and says about how many lines each has; nil where it
// is to be read in one. It may only be called before in.r is read.
func (in *input) pieces() []piece {
	n := min(int64(in.abreast), in.size/leastPiece, mostPieces)
	if in.at == nil || n < 2 {
		return nil
	}
	cut := []piece{{}}
	buf := make([]byte, probe)
	ended, looked := 0, 0
	for i := int64(1); i < n; i++ {
		at := in.size / n * i
		got, err := in.at.ReadAt(buf, at)
		end := bytes.IndexByte(buf[:got], '\n')
		if err != nil || end < 0 {
			return nil
		}
		ended, looked = ended+bytes.Count(buf[:got], []byte("\n")), looked+got
		at += int64(end) + 1
		cut[len(cut)-1].to = at
		cut = append(cut, piece{from: at})
	}
	cut[len(cut)-1].to = in.size
	for i := range cut {
		cut[i].lines = float64(cut[i].to-cut[i].from) * float64(ended) / float64(looked)
	}
	cut[len(cut)-1].to = math.MaxInt64
	return cut
}

// piece is the input of a piece of in, with a report of its own. The first goes
// on with what in reads already.
func (in *input) piece(ctx context.Context, p piece) *input {
	one := &input{path: in.path, report: &Report{Path: in.path}, size: p.to - p.from}
	if p.to == math.MaxInt64 {
		one.size = max(in.size-p.from, 0)
	}
	if p.from == 0 {
		one.r = io.LimitReader(in.r, p.to) // which counts its bytes in in.report
	} else {
		one.r = &bounded{ctx: ctx, r: io.NewSectionReader(in.at, p.from, p.to-p.from), report: one.report}
	}
	return one
}

// add adds the report of the next piece of the file to that of those before.
func (r *Report) add(next *Report) {
	before := int(r.Lines)
	for _, p := range next.Unused {
		if p.Line > 0 {
			p.Line += before
		}
		if len(r.Unused) < maxUnused {
			r.Unused = append(r.Unused, p)
		} else {
			r.UnusedMore++
		}
	}
	for _, i := range next.Ignored {
		r.ignoreMore(Ignored{i.Reason, i.Lines, i.First + before})
	}
	r.UnusedMore += next.UnusedMore
	r.Assumed = append(r.Assumed, next.Assumed...)
	r.Bytes += next.Bytes
	r.Records += next.Records
	r.Lines += next.Lines
	r.LinesUsed += next.LinesUsed
}
