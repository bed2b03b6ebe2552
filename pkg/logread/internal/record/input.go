package record

import (
	"context"
	"io"
)

// Input is a file that a format reads.
type Input struct {
	Path   string    // as found; problems name it
	Reader io.Reader // its content, decompressed
	Size   int64     // of the content in bytes; 0 if the file is compressed
	Report *Report

	ReaderAt   io.ReaderAt // the content at any offset; nil if the file is compressed
	Goroutines int         // number of goroutines that may read the file
}

// Problem notes a line that could not be used. Line 0 means the whole file.
func (in *Input) Problem(line int, format string, a ...any) { in.Report.Problem(line, format, a...) }

// CountContent returns a reader of a file's content that adds what it reads to
// the report and fails once ctx is done.
func CountContent(ctx context.Context, r io.Reader, report *Report) io.Reader {
	return &contentCounter{ctx: ctx, r: r, report: report}
}

type contentCounter struct {
	ctx    context.Context
	r      io.Reader
	report *Report
}

func (c *contentCounter) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.report.Bytes += int64(n)
	return n, err
}
