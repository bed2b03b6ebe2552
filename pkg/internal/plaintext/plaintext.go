// Package plaintext decodes text files in UTF-8 with a byte-order mark or in UTF-16, as
// spreadsheets and PowerShell write them.
package plaintext

import (
	"bufio"
	"bytes"
	"io"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// unmarkedBytes is the number of bytes at the beginning of a text by which UTF-16 without a
// byte-order mark is detected. A text in UTF-16 that is shorter than minUnmarkedBytes is not.
const (
	unmarkedBytes    = 64
	minUnmarkedBytes = 8
)

// DetectEncoding returns the encoding that the byte-order mark at the start of head
// identifies, or UTF-16 if head begins with ASCII characters in two bytes each, or "" for
// any other text.
func DetectEncoding(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		return "UTF-8 with a byte-order mark"
	case bytes.HasPrefix(head, []byte("\xff\xfe")) && !bytes.HasPrefix(head, []byte("\xff\xfe\x00\x00")): // the mark of UTF-32
		return "UTF-16, little-endian"
	case bytes.HasPrefix(head, []byte("\xfe\xff")):
		return "UTF-16, big-endian"
	case isUnmarkedUTF16(head, 0):
		return "UTF-16, little-endian, without a byte-order mark"
	case isUnmarkedUTF16(head, 1):
		return "UTF-16, big-endian, without a byte-order mark"
	}
	return ""
}

// isUnmarkedUTF16 reports whether the first characters of head are ASCII characters in UTF-16,
// whose byte at the index first is the character and the other one is zero.
func isUnmarkedUTF16(head []byte, first int) bool {
	head = head[:min(len(head), unmarkedBytes)]
	if len(head) < minUnmarkedBytes {
		return false
	}
	for i := 0; i+1 < len(head); i += 2 {
		c, zero := head[i+first], head[i+1-first]
		if zero != 0 || c >= 0x7f || c < ' ' && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
	}
	return true
}

func newDecoder(head []byte) transform.Transformer {
	switch {
	case isUnmarkedUTF16(head, 0):
		return unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewDecoder()
	case isUnmarkedUTF16(head, 1):
		return unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM).NewDecoder()
	}
	return unicode.BOMOverride(encoding.Nop.NewDecoder())
}

// NewReader returns a reader that decodes r to UTF-8 without a byte-order mark. name is the
// result of DetectEncoding for the start of r; if name is "", text is r itself.
func NewReader(r *bufio.Reader) (text io.Reader, name string) {
	head, _ := r.Peek(unmarkedBytes) // the next read returns the error
	if name = DetectEncoding(head); name == "" {
		return r, ""
	}
	return transform.NewReader(r, newDecoder(head)), name
}

// Decode decodes text to UTF-8 without a byte-order mark. It returns a text in any other
// encoding unchanged.
func Decode(text []byte) ([]byte, error) {
	if DetectEncoding(text) == "" {
		return text, nil
	}
	text, _, err := transform.Bytes(newDecoder(text), text)
	return text, err
}
