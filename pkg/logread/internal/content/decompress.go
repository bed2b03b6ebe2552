package content

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"

	"lockstep/pkg/logread/internal/record"
)

// Limits of decompression, which stop files that are designed to fill a disk.
// Such a file compresses to a thousandth of its size, a repetitive log only to
// a hundredth.
const (
	maxRatio    = 300
	ratioFrom   = 64 << 20 // decompressed bytes after which the ratio is checked
	maxUnpacked = 1 << 40
	maxWindow   = 128 << 20 // memory of the zstd and xz decoders
)

// maxMagicBytes is the number of bytes that detectCompression needs.
const maxMagicBytes = 10

// detectCompression returns the compression format of a file that begins with head, or "" if the
// file is not compressed. The formats are "gzip" (RFC 1952, section 2.3.1), "zstd" (RFC 8878,
// section 3.1.1), "xz" (The .xz File Format, section 2.1.1.1) and "bzip2" (BZh, a level, and a
// block or end-of-stream marker).
func detectCompression(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return "gzip"
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "zstd"
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return "xz"
	case len(head) >= 10 && string(head[:3]) == "BZh" && head[3] >= '1' && head[3] <= '9' &&
		(string(head[4:10]) == "\x31\x41\x59\x26\x53\x59" || string(head[4:10]) == "\x17\x72\x45\x38\x50\x90"):
		return "bzip2"
	}
	return ""
}

// newDecompressor returns a reader of the decompressed content of raw and a
// function that releases the decoder. The reader is nil if compression is "".
func newDecompressor(compression string, raw *bufio.Reader) (r io.Reader, closeIt func(), err error) {
	closeIt = func() {}
	switch compression {
	case "gzip":
		r, err = gzip.NewReader(raw)
	case "zstd":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true)); err == nil {
			r, closeIt = z, z.Close
		}
	case "xz":
		r, err = newXZReader(raw)
	case "bzip2":
		r = bzip2.NewReader(raw)
	}
	return r, closeIt, err
}

// maxXZBlockHeader is the size in bytes of the largest header of a block in an xz file.
const maxXZBlockHeader = 1024

// newXZReader returns a reader of the decompressed content of raw. It returns
// an error if the first block needs a dictionary larger than maxWindow. The
// blocks of a file usually need dictionaries of the same size.
func newXZReader(raw *bufio.Reader) (io.Reader, error) {
	head, err := raw.Peek(xz.HeaderLen + maxXZBlockHeader)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if size, ok := xzDictionaryBytes(head); ok && size > maxWindow {
		return nil, fmt.Errorf("got a dictionary of %d MiB, want at most %d MiB", size>>20, maxWindow>>20)
	}
	x := &xzReader{}
	x.unpacked, err = xz.ReaderConfig{DictCap: lzma.MinDictCap}.NewReader(io.TeeReader(raw, x))
	return x, err
}

// xzDictionaryBytes returns the size of the dictionary of the first block of an
// xz file that begins with head. ok is false if the block has other filters than
// LZMA2, or head is too short (The .xz File Format, sections 3.1 and 5.3.1).
func xzDictionaryBytes(head []byte) (size int64, ok bool) {
	const filterLZMA2, propertyBytes = 0x21, 1
	if len(head) <= xz.HeaderLen {
		return 0, false
	}
	block := head[xz.HeaderLen:]
	block = block[:min(len(block), 4*(int(block[0])+1))]
	if len(block) < 2 {
		return 0, false
	}
	flags, rest := block[1], block[2:]
	for _, present := range []byte{0x40, 0x80} { // the compressed size, the decompressed size
		if flags&present == 0 {
			continue
		}
		for len(rest) > 0 && rest[0]&0x80 != 0 {
			rest = rest[1:]
		}
		rest = rest[min(1, len(rest)):]
	}
	if len(rest) < 3 || rest[0] != filterLZMA2 || rest[1] != propertyBytes {
		return 0, false
	}
	size, err := lzma.DecodeDictCap(rest[2])
	return size, err == nil
}

// xzReader decompresses an xz file. Package xz accepts a file that was cut between two blocks, so
// xzReader also checks that the file ends with a stream footer.
type xzReader struct {
	unpacked *xz.Reader
	last     [2]byte // the last bytes of the file that were read and are not padding
}

// Write remembers the last two bytes other than 0 of the compressed ones.
func (x *xzReader) Write(p []byte) (int, error) {
	n := len(p)
	p = bytes.TrimRight(p, "\x00")
	if len(p) == 1 {
		x.last = [2]byte{x.last[1], p[0]}
	} else if len(p) > 1 {
		x.last = [2]byte(p[len(p)-2:])
	}
	return n, nil
}

// Read returns io.ErrUnexpectedEOF if the file does not end with the footer of a stream.
func (x *xzReader) Read(p []byte) (int, error) {
	n, err := x.unpacked.Read(p)
	if errors.Is(err, io.EOF) && x.last != [2]byte{'Y', 'Z'} {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

type countingReader struct {
	r   io.Reader
	n   int64
	eof bool // r returned io.EOF
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.eof = c.eof || errors.Is(err, io.EOF)
	return n, err
}

// contentReader reads the content of a file and counts its bytes in report. Its Read fails once ctx
// is done, so that formats need not check ctx. It ends the content early and reports a problem if a
// compressed file is damaged or expands to much more than its size allows.
type contentReader struct {
	ctx    context.Context
	r      io.Reader
	packed *countingReader // of a compressed file; otherwise nil
	report *record.Report
	ended  bool // the content was ended early
}

func (b *contentReader) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	if b.report.Bytes += int64(n); b.packed == nil {
		return n, err
	}
	b.ended = true
	defer func() { b.report.Truncated = b.report.Truncated || b.ended }()
	switch got := b.report.Bytes; {
	case got > maxUnpacked, got > ratioFrom && got/maxRatio > b.packed.n:
		b.report.AddProblem(0, "decompression stopped after %d bytes: the content is more than %d times as large as the file; the content up to there is read", got, maxRatio)
		return n, io.EOF
	case isTruncationError(err, b.packed):
		b.report.AddProblem(0, "the compressed file is truncated; the content up to there is read")
		return n, io.EOF
	case err != nil && !errors.Is(err, io.EOF) && isDamageError(err):
		b.report.AddProblem(0, "the compressed file is damaged after %d bytes of content (%v); the content up to there is read", got, err)
		return n, io.EOF
	}
	b.ended = false
	return n, err
}

// isDamageError reports whether err shows damaged content, not a failed read or a canceled context.
func isDamageError(err error) bool {
	var disk *os.PathError
	return !errors.As(err, &disk) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// isTruncationError reports whether err shows that the compressed file ends too early: package
// bzip2 reads zeros after the end of the file, and then reports damage.
func isTruncationError(err error, packed *countingReader) bool {
	var damage bzip2.StructuralError
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &damage) && packed.eof
}
