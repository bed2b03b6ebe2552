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

// maxHeadBytes is the number of bytes at the beginning of a file from which
// formats recognize it.
const maxHeadBytes = 4096

// Limits of decompression, which stop files that are designed to fill a disk.
// Such a file compresses to a thousandth of its size, a repetitive log only to
// a hundredth.
const (
	maxRatio    = 300
	ratioFrom   = 64 << 20 // decompressed bytes after which the ratio is checked
	maxUnpacked = 1 << 40
	maxWindow   = 128 << 20 // memory of the zstd decoder
)

// openContent returns the decompressed content of f as the input of a format's
// reader, the first bytes of the content, and a function that releases the
// decoder. size is the size of the file in bytes.
func openContent(ctx context.Context, f *os.File, size int64, report *record.Report) (*record.Input, []byte, func(), error) {
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
	switch report.Compression = detectCompression(magic); report.Compression {
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
	text, encoding := plaintext.NewReader(packed)
	body := record.NewCountingReader(ctx, text, report)
	if unpacked != nil {
		body = &boundedReader{r: body, packed: counted, report: report}
	}
	if encoding != "" {
		in.Size, in.ReaderAt = 0, nil
		report.AddAssumption("the text is %s", encoding)
	}
	peek := bufio.NewReaderSize(body, maxHeadBytes)
	head, err := peek.Peek(maxHeadBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		closeIt()
		return nil, nil, none, err
	}
	in.Reader = &peekedReader{head: head, peeked: peek, rest: body}
	return in, head, closeIt, nil
}

// detectCompression returns "gzip" (RFC 1952, section 2.3.1) or "zstd" (RFC
// 8878, section 3.1.1) for a file that begins with head, or "" if the file is
// not compressed.
func detectCompression(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return "gzip"
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "zstd"
	}
	return ""
}

// peekedReader reads a file's content from its beginning, although the first
// bytes have been peeked at: it reads the bytes in the buffer of peeked, and
// then reads directly from rest, without a copy.
type peekedReader struct {
	head   []byte
	peeked *bufio.Reader
	rest   io.Reader
}

func (a *peekedReader) Read(p []byte) (int, error) {
	if a.peeked.Buffered() > 0 {
		return a.peeked.Read(p)
	}
	return a.rest.Read(p)
}

// countingReader counts the bytes that are read from a compressed file.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// boundedReader reads the content of a compressed file. If the file is damaged
// or the content is much too large for the file's size, it ends the content
// early and reports a problem.
type boundedReader struct {
	r      io.Reader // adds the number of its bytes to report
	packed *countingReader
	report *record.Report
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	switch got := b.report.Bytes; {
	case got > maxUnpacked, got > ratioFrom && got/maxRatio > b.packed.n:
		b.report.AddProblem(0, "decompression stopped after %d bytes: the content is more than %d times as large as the file; the content up to there is read", got, maxRatio)
		return n, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		b.report.AddProblem(0, "the compressed file is truncated; the content up to there is read")
		return n, io.EOF
	case err != nil && !errors.Is(err, io.EOF) && isDamageError(err):
		b.report.AddProblem(0, "the compressed file is damaged after %d bytes of content (%v); the content up to there is read", got, err)
		return n, io.EOF
	}
	return n, err
}

// isDamageError reports whether err shows that the compressed content is
// damaged, as opposed to a failed read or a canceled context.
func isDamageError(err error) bool {
	var disk *os.PathError
	return !errors.As(err, &disk) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}
