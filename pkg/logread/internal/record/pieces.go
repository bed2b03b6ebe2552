package record

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

// Piece is a stretch of whole lines.
type Piece struct {
	from, to int64 // in the file; the last goes on to its end, wherever that is
	Lines    float64
}

// Pieces cuts the content, and says about how many lines each has; nil where it
// is to be read in one. It may only be called before in.r is read.
func (in *Input) Pieces() []Piece {
	n := min(int64(in.Goroutines), in.Size/leastPiece, mostPieces)
	if in.ReaderAt == nil || n < 2 {
		return nil
	}
	cut := []Piece{{}}
	buf := make([]byte, probe)
	ended, looked := 0, 0
	for i := int64(1); i < n; i++ {
		at := in.Size / n * i
		got, err := in.ReaderAt.ReadAt(buf, at)
		end := bytes.IndexByte(buf[:got], '\n')
		if err != nil || end < 0 {
			return nil
		}
		ended, looked = ended+bytes.Count(buf[:got], []byte("\n")), looked+got
		at += int64(end) + 1
		cut[len(cut)-1].to = at
		cut = append(cut, Piece{from: at})
	}
	cut[len(cut)-1].to = in.Size
	for i := range cut {
		cut[i].Lines = float64(cut[i].to-cut[i].from) * float64(ended) / float64(looked)
	}
	cut[len(cut)-1].to = math.MaxInt64
	return cut
}

// Piece is the input of a piece of in, with a report of its own. The first goes
// on with what in reads already.
func (in *Input) Piece(ctx context.Context, p Piece) *Input {
	one := &Input{Path: in.Path, Report: &Report{Path: in.Path}, Size: p.to - p.from}
	if p.to == math.MaxInt64 {
		one.Size = max(in.Size-p.from, 0)
	}
	if p.from == 0 {
		one.Reader = io.LimitReader(in.Reader, p.to) // which counts its bytes in in.report
	} else {
		one.Reader = CountContent(ctx, io.NewSectionReader(in.ReaderAt, p.from, p.to-p.from), one.Report)
	}
	return one
}
