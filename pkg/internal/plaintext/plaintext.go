// Package plaintext decodes text files with a byte-order mark, in UTF-8 or UTF-16, as
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

// DetectEncoding returns the name of the encoding that the byte-order mark at the start of
// head identifies, or "" if head does not start with a byte-order mark.
func DetectEncoding(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		return "UTF-8 with a byte-order mark"
	case bytes.HasPrefix(head, []byte("\xff\xfe")) && !bytes.HasPrefix(head, []byte("\xff\xfe\x00\x00")): // the mark of UTF-32
		return "UTF-16, little-endian"
	case bytes.HasPrefix(head, []byte("\xfe\xff")):
		return "UTF-16, big-endian"
	}
	return ""
}

// NewReader returns a reader that decodes r to UTF-8 without a byte-order mark. name is the
// result of DetectEncoding for the start of r; if name is "", text is r itself.
func NewReader(r *bufio.Reader) (text io.Reader, name string) {
	head, _ := r.Peek(4) // the next read returns the error
	if name = DetectEncoding(head); name == "" {
		return r, ""
	}
	return transform.NewReader(r, unicode.BOMOverride(encoding.Nop.NewDecoder())), name
}

// Decode decodes text to UTF-8 without a byte-order mark. It returns text without such a mark
// unchanged.
func Decode(text []byte) ([]byte, error) {
	if DetectEncoding(text) == "" {
		return text, nil
	}
	text, _, err := transform.Bytes(unicode.BOMOverride(encoding.Nop.NewDecoder()), text)
	return text, err
}
