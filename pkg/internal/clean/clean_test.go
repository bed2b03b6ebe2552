package clean

import (
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, c := range []struct{ in, text, lines string }{
		{"PyTorch Horovod (4×)", "PyTorch Horovod (4×)", "PyTorch Horovod (4×)"},
		{"", "", ""},
		{"a\x1b[2Jb", `a\x1b[2Jb`, `a\x1b[2Jb`},
		{"a\nb\tc\r", `a\nb\tc\r`, "a\nb\tc\\r"},
		{"\x00\x7f\u009b", `\x00\x7f\u009b`, `\x00\x7f\u009b`},
		{"\ufffe\uffff", `\ufffe\uffff`, `\ufffe\uffff`},
		{"safe\u202etxt.exe", `safe\u202etxt.exe`, `safe\u202etxt.exe`},
		{"bad \xff byte", `bad \xff byte`, `bad \xff byte`},
		{"real \ufffd", "real \ufffd", "real \ufffd"},
		{"日本語 שלום 🙂", "日本語 שלום 🙂", "日本語 שלום 🙂"},
	} {
		if got := EscapeText(c.in); got != c.text {
			t.Errorf("Text(%q) is %q, want %q", c.in, got, c.text)
		}
		if got := EscapeMultiline(c.in); got != c.lines {
			t.Errorf("Lines(%q) is %q, want %q", c.in, got, c.lines)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b]0;title\x07\n")
	f.Fuzz(func(t *testing.T, s string) {
		text := EscapeText(s)
		if !utf8.ValidString(text) || EscapeText(text) != text {
			t.Errorf("Text(%q) is %q", s, text)
		}
		for _, r := range text {
			if r < 0x20 || r == 0x7f {
				t.Errorf("Text(%q) has %q", s, r)
			}
		}
	})
}
