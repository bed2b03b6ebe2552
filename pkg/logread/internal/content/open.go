// Package content opens a log file of any encoding: it decompresses gzip, zstd, xz and bzip2,
// converts UTF-16 to UTF-8, and refuses what must not be read, such as pickles.
//
// A compressed file may be damaged, truncated, or designed to fill a disk. Its content ends
// there, and the report of the file says why.
package content

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"lockstep/pkg/internal/plaintext"
	"lockstep/pkg/logread/internal/record"
)

// MaxHeadBytes is the number of bytes at the beginning of a file from which its format is
// recognized.
const MaxHeadBytes = 4096

// Open returns the decompressed content of f as the input of a format's reader, its
// first bytes, and a function that releases the decoder. size is that of the file in bytes.
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
	body := &contentReader{ctx: ctx, r: text, report: report}
	if unpacked != nil {
		body.packed = counted
	}
	if encoding != "" {
		in.Size, in.ReaderAt = 0, nil
		report.AddAssumption("the text is %s", encoding)
	}
	head := make([]byte, MaxHeadBytes)
	n, err := io.ReadFull(body, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		closeIt()
		return nil, nil, none, err
	}
	head = head[:n]
	in.Reader = io.MultiReader(bytes.NewReader(head), body)
	return in, head, closeIt, nil
}
