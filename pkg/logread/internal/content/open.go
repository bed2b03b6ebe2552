package content

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"lockstep/pkg/internal/plaintext"
	"lockstep/pkg/logread/internal/record"
)

// MaxHeadBytes is the number of bytes at the beginning of a file from which
// formats recognize it.
const MaxHeadBytes = 4096

// Open returns the decompressed content of f as the input of a format's
// reader, the first bytes of the content, and a function that releases the
// decoder. size is the size of the file in bytes.
func Open(ctx context.Context, f *os.File, size int64, report *record.Report) (*record.Input, []byte, func(), error) {
	counted := &countingReader{r: f}
	raw := bufio.NewReaderSize(counted, MaxHeadBytes)
	in := &record.Input{Path: report.Path, Report: report, Size: size, ReaderAt: f}
	none := func() {}
	magic, err := raw.Peek(maxMagicBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, none, err
	}
	if report.Compression = detectCompression(magic); report.Compression != "" { // decompressors read few bytes at once
		raw = bufio.NewReaderSize(raw, 1<<16)
	}
	unpacked, closeIt, err := newDecompressor(report.Compression, raw)
	if err != nil {
		return nil, nil, none, fmt.Errorf("unpack %s: %w", report.Compression, err)
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
	peek := bufio.NewReaderSize(body, MaxHeadBytes)
	head, err := peek.Peek(MaxHeadBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		closeIt()
		return nil, nil, none, err
	}
	in.Reader = &peekedReader{head: head, peeked: peek, rest: body}
	return in, head, closeIt, nil
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
