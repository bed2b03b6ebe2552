package record

import (
	"bytes"
	"context"
	"io"
	"math"
)

// A long text whose rows do not depend on each other is split into chunks that
// several goroutines read. Each chunk begins after a line end.

const (
	minChunkBytes = 1 << 20 // bytes; a shorter chunk is not worth a goroutine
	maxChunks     = 16
	probeBytes    = 1 << 16 // bytes in which the line end before a chunk is searched
)

// Chunk is a range of a file that contains complete lines.
type Chunk struct {
	from, to int64   // offsets in the file; to of the last chunk is math.MaxInt64
	Lines    float64 // estimated number of lines
}

// Split divides the content into chunks and estimates their numbers of lines.
// It returns nil if the content should be read by one goroutine. It must be
// called before in.Reader is read.
func (in *Input) Split() []Chunk {
	n := min(int64(in.Goroutines), in.Size/minChunkBytes, maxChunks)
	if in.ReaderAt == nil || n < 2 {
		return nil
	}
	chunks := []Chunk{{}}
	buf := make([]byte, probeBytes)
	lines, probed := 0, 0
	for i := int64(1); i < n; i++ {
		at := in.Size / n * i
		got, err := in.ReaderAt.ReadAt(buf, at)
		end := bytes.IndexByte(buf[:got], '\n')
		if err != nil || end < 0 {
			return nil
		}
		lines, probed = lines+bytes.Count(buf[:got], []byte("\n")), probed+got
		at += int64(end) + 1
		chunks[len(chunks)-1].to = at
		chunks = append(chunks, Chunk{from: at})
	}
	chunks[len(chunks)-1].to = in.Size
	for i := range chunks {
		chunks[i].Lines = float64(chunks[i].to-chunks[i].from) * float64(lines) / float64(probed)
	}
	chunks[len(chunks)-1].to = math.MaxInt64
	return chunks
}

// ChunkInput returns an Input with the content of a chunk and a new report. The
// first chunk reads from in.Reader, of which a part may have been read already.
func (in *Input) ChunkInput(ctx context.Context, p Chunk) *Input {
	one := &Input{Path: in.Path, Report: &Report{Path: in.Path}, Size: p.to - p.from}
	if p.to == math.MaxInt64 {
		one.Size = max(in.Size-p.from, 0)
	}
	if p.from == 0 {
		one.Reader = io.LimitReader(in.Reader, p.to) // adds its bytes to in.Report
	} else {
		one.Reader = NewCountingReader(ctx, io.NewSectionReader(in.ReaderAt, p.from, p.to-p.from), one.Report)
	}
	return one
}
