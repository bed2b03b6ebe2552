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

// content opens f's content: unpacked where it is compressed, and bounded.
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

// bounded ends the content of a compressed file where it holds out of proportion
// to its size or is damaged.
type bounded struct {
	r      io.Reader // counted in report
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

// damaged says whether err is about a compressed file's content, not its disk.
func damaged(err error) bool {
	var disk *os.PathError
	return !errors.As(err, &disk) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}
