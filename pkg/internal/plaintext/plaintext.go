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

// UTF-16 without a byte-order mark is detected from the first unmarkedBytes bytes of a text. A
// text of less than minUnmarkedBytes bytes is not recognized as UTF-16.
const (
	unmarkedBytes    = 64
	minUnmarkedBytes = 8
)

// DetectEncoding returns the encoding of a text that begins with head. It recognizes byte-order
// marks, and UTF-16 without a mark if head consists of ASCII characters of two bytes each. For
// any other text it returns "".
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

// isUnmarkedUTF16 reports whether head begins with ASCII characters in UTF-16. One byte of each
// pair is the character and the other one is zero; first is the index of the character in its
// pair.
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
