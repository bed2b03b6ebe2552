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
	"lockstep/pkg/logread/internal/record"
)

// headBytes is how many bytes of a file a format sees in order to recognize it.
const headBytes = 4096

// Limits for decompression. A repetitive log shrinks to a hundredth of its
// size, a file made to fill a disk to a thousandth.
const (
	maxRatio    = 300
	ratioFrom   = 64 << 20 // decompressed bytes from which on the ratio is checked
	maxUnpacked = 1 << 40
	maxWindow   = 128 << 20 // memory of the zstd decoder
)

// content opens the content of f, decompressed and within limits. It returns
// the input for a format's reader, the first bytes, and a function that
// releases the decoder.
func content(ctx context.Context, f *os.File, size int64, report *record.Report) (*record.Input, []byte, func(), error) {
	counted := &countingReader{r: f}
	raw := bufio.NewReaderSize(counted, 1<<16)
	in := &record.Input{Path: report.Path, Report: report, Size: size, ReaderAt: f}
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
	packed := raw
	if unpacked != nil {
		in.Size, in.ReaderAt = 0, nil
		packed = bufio.NewReaderSize(unpacked, 1<<16)
	}
	text, encoding := plaintext.Reader(packed)
	body := record.CountContent(ctx, text, report)
	if unpacked != nil {
		body = &bounded{r: body, packed: counted, report: report}
	}
	if encoding != "" {
		in.Size, in.ReaderAt = 0, nil
		report.Assume("the text is %s", encoding)
	}
	peek := bufio.NewReaderSize(body, headBytes)
	head, err := peek.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		closeIt()
		return nil, nil, none, err
	}
	in.Reader = &afterHead{head: head, peeked: peek, rest: body}
	return in, head, closeIt, nil
}

// compression returns "gzip" (RFC 1952, section 2.3.1) or "zstd" (RFC 8878,
// section 3.1.1) for a file that begins with head, or "" if the file is not
// compressed.
func compression(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return "gzip"
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "zstd"
	}
	return ""
}

// afterHead first returns the bytes that were peeked at, then reads on without
// a copy.
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

// countingReader counts the bytes read from a compressed file.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// bounded ends the content of a compressed file if it is damaged or grows out
// of proportion to the file's size.
type bounded struct {
	r      io.Reader // adds its bytes to report
	packed *countingReader
	report *record.Report
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	switch got := b.report.Bytes; {
	case got > maxUnpacked, got > ratioFrom && got/maxRatio > b.packed.n:
		b.report.Problem(0, "unpacking stopped after %d bytes: the file unpacks to more than %d times its size; what came before is read", got, maxRatio)
		return n, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		b.report.Problem(0, "the compressed file ends in the middle; what came before is read")
		return n, io.EOF
	case err != nil && !errors.Is(err, io.EOF) && damaged(err):
		b.report.Problem(0, "the compressed file is damaged after %d bytes of content (%v); what came before is read", got, err)
		return n, io.EOF
	}
	return n, err
}

// damaged reports whether err is about the content of a compressed file, not
// about reading it.
func damaged(err error) bool {
	var disk *os.PathError
	return !errors.As(err, &disk) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}
