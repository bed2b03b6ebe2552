// Package plaintext reads text files of other encodings than plain UTF-8: spreadsheets
// and PowerShell write a byte-order mark, or UTF-16.
package plaintext

import (
	"bufio"
	"bytes"
	"io"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// Encoding returns the name of the encoding that the byte-order mark at the start
// of head stands for. It returns "" if there is none.
func Encoding(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		return "UTF-8 with a byte-order mark"
	case bytes.HasPrefix(head, []byte("\xff\xfe")) && !bytes.HasPrefix(head, []byte("\xff\xfe\x00\x00")): // that is UTF-32
		return "UTF-16, little-endian"
	case bytes.HasPrefix(head, []byte("\xfe\xff")):
		return "UTF-16, big-endian"
	}
	return ""
}

// Reader returns r's text as UTF-8 without a byte-order mark, and the name of its
// encoding as Encoding gives it.
func Reader(r *bufio.Reader) (text io.Reader, name string) {
	head, _ := r.Peek(4) // the read that follows gives the error
	if name = Encoding(head); name == "" {
		return r, ""
	}
	return transform.NewReader(r, unicode.BOMOverride(encoding.Nop.NewDecoder())), name
}

// Decode is Reader for a text in memory.
func Decode(text []byte) ([]byte, error) {
	if Encoding(text) == "" {
		return text, nil
	}
	text, _, err := transform.Bytes(unicode.BOMOverride(encoding.Nop.NewDecoder()), text)
	return text, err
}
