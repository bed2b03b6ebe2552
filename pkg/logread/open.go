package logread

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"lockstep/pkg/internal/plaintext"
)

// headBytes is how much of a file's content a recogniser sees.
const headBytes = 4096

// Bounds of what a compressed file may unpack to. A log that repeats itself
// shrinks to a hundredth; a file made to fill a disk to a thousandth.
const (
	maxRatio    = 300
	ratioFrom   = 64 << 20 // bytes unpacked, from which on the ratio counts
	maxUnpacked = 1 << 40
	maxWindow   = 128 << 20 // of zstd: memory of its decoder
)

// input is a file that a kind reads.
type input struct {
	path   string    // as it was met; problems name it
	r      io.Reader // its content, unpacked
	size   int64     // of the content, 0 where it is compressed
	report *Report

	at      io.ReaderAt // the content from any place on; nil where it is compressed
	abreast int         // goroutines that may read it
	least   int64       // bytes of a piece of a text log; 0: leastAhead
}

// problem notes a line that could not be used (0: the whole file).
func (in *input) problem(line int, format string, a ...any) { in.report.problem(line, format, a...) }

// content opens f's content: unpacked where it is compressed, and bounded.
func content(ctx context.Context, f *os.File, size int64, report *Report) (*input, []byte, func(), error) {
	counted := &countingReader{r: f}
	raw := bufio.NewReaderSize(counted, 1<<16)
	in := &input{path: report.Path, report: report, size: size, at: f}
	none := func() {}
	magic, err := raw.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, none, err
	}
	var unpacked io.Reader
	closeIt := none
	switch report.Compression = compression(magic); report.Compression {
	case "gzip":
		z, err := gzip.NewReader(raw)
		if err != nil {
			return nil, nil, none, fmt.Errorf("unpack gzip: %w", err)
		}
		unpacked = z
	case "zstd":
		z, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, nil, none, fmt.Errorf("unpack zstd: %w", err)
		}
		unpacked, closeIt = z, z.Close
	}
	body := &bounded{ctx: ctx, r: raw, report: report}
	packed := raw
	if unpacked != nil {
		in.size, in.at = 0, nil
		packed, body.packed = bufio.NewReaderSize(unpacked, 1<<16), counted
	}
	text, encoding := plaintext.Reader(packed)
	body.r = text
	if encoding != "" {
		in.size, in.at = 0, nil
		report.assume("the text is %s", encoding)
	}
	peek := bufio.NewReaderSize(body, headBytes)
	head, err := peek.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		closeIt()
		return nil, nil, none, err
	}
	in.r = &afterHead{head: head, peeked: peek, rest: body}
	return in, head, closeIt, nil
}

// compression is how a content that begins so is packed (RFC 1952, section
// 2.3.1; RFC 8878, section 3.1.1); "" where it is not.
func compression(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return "gzip"
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "zstd"
	}
	return ""
}

// afterHead gives the head once more and then reads on without a copy.
type afterHead struct {
	head   []byte
	peeked *bufio.Reader
	rest   io.Reader
}

func (a *afterHead) Read(p []byte) (int, error) {
	if a.peeked.Buffered() > 0 {
		return a.peeked.Read(p)
	}
	return a.rest.Read(p)
}

// countingReader counts what was read of a compressed file.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// bounded counts the content, and ends it where a compressed file holds out of
// proportion to its size, is damaged, or the reading was called off.
type bounded struct {
	ctx    context.Context
	r      io.Reader
	packed *countingReader // nil where the file is not compressed
	report *Report
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	b.report.Bytes += int64(n)
	if b.packed == nil {
		return n, err
	}
	switch got := b.report.Bytes; {
	case got > maxUnpacked, got > ratioFrom && got/maxRatio > b.packed.n:
		b.report.problem(0, "unpacking stopped after %d bytes: the file unpacks to more than %d times its size; what came before is read", got, maxRatio)
		return n, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		b.report.problem(0, "the compressed file ends in the middle; what came before is read")
		return n, io.EOF
	case err != nil && !errors.Is(err, io.EOF) && damaged(err):
		b.report.problem(0, "the compressed file is damaged after %d bytes of content (%v); what came before is read", got, err)
		return n, io.EOF
	}
	return n, err
}

// damaged says whether err is about a compressed file's content, not its disk.
func damaged(err error) bool {
	var disk *os.PathError
	return !errors.As(err, &disk) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}
