package record

import (
	"bytes"
	"context"
	"io"
	"math"
)

// A long text whose rows do not depend on each other is read in pieces by
// several goroutines. Each piece begins after a line end.

const (
	leastPiece = 1 << 20 // bytes; a shorter piece is not worth a goroutine
	mostPieces = 16
	probe      = 1 << 16 // bytes to search for the line end before a piece
)

// Piece is a part of a file made of whole lines.
type Piece struct {
	from, to int64 // offsets in the file; to of the last piece is math.MaxInt64
	Lines    float64
}

// Pieces divides the content and estimates the lines of each piece. It returns
// nil if the content is to be read in one piece. It must be called before
// Reader is read.
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

// Piece returns the input of a piece, with a report of its own. The first piece
// continues with what in.Reader has already read.
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
