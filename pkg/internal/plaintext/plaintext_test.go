package plaintext

import (
	"bufio"
	"bytes"
	"io"
	"testing"
)

func TestReader(t *testing.T) {
	for _, c := range []struct{ in, text, name string }{
		{"", "", ""},
		{"a", "a", ""},
		{"grün\n", "grün\n", ""},
		{"\xef\xbb\xbfgrün\n", "grün\n", "UTF-8 with a byte-order mark"},
		{"\xff\xfeg\x00r\x00\xfc\x00\n\x00", "grü\n", "UTF-16, little-endian"},
		{"\xfe\xff\x00g\x00r\x00\xfc\x00\n", "grü\n", "UTF-16, big-endian"},
		{"e\x00p\x00o\x00c\x00h\x00,\x00\xfc\x00\n\x00", "e\x00p\x00o\x00c\x00h\x00,\x00\xfc\x00\n\x00", ""}, // ü may be anything
		{"e\x00p\x00o\x00c\x00h\x00\n\x00", "epoch\n", "UTF-16, little-endian, without a byte-order mark"},
		{"\x00e\x00p\x00o\x00c\x00h\x00\n", "epoch\n", "UTF-16, big-endian, without a byte-order mark"},
		{"e\x00p\x00o\x00", "e\x00p\x00o\x00", ""},                                   // too short to be sure
		{"\x18\x00\x00\x00\x00\x00\x00\x00", "\x18\x00\x00\x00\x00\x00\x00\x00", ""}, // an event file
		{"\xff\xfe\x00\x00", "\xff\xfe\x00\x00", ""},                                 // UTF-32
	} {
		r, name := NewReader(bufio.NewReader(bytes.NewReader([]byte(c.in))))
		text, err := io.ReadAll(r)
		if err != nil || string(text) != c.text || name != c.name {
			t.Errorf("Reader(%q) gives %q, %q, %v; want %q, %q", c.in, text, name, err, c.text, c.name)
		}
		if text, err := Decode([]byte(c.in)); err != nil || string(text) != c.text {
			t.Errorf("Decode(%q) is %q, %v", c.in, text, err)
		}
	}
}
