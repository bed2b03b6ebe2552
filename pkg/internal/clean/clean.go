// Package clean makes text from files fit to be shown. A name in a log may hold
// terminal escapes that hide or forge other lines, characters that turn the
// direction of writing, and bytes that make an SVG or HTML file invalid.
package clean

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s on one line with each character that must not be shown replaced
// by its escape in Go's syntax, such as \n, \x1b or \u202e.
func Text(s string) string { return escaped(s, "") }

// Lines is Text for text of several lines: line ends and tabs stay.
func Lines(s string) string { return escaped(s, "\n\t") }

func escaped(s, kept string) string {
	clean := func(r rune) bool { return !shown(r) && !strings.ContainsRune(kept, r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, clean) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch _, size := utf8.DecodeRuneInString(s[i:]); {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n' && clean(r):
			b.WriteString(`\n`)
		case r == '\t' && clean(r):
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case clean(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case clean(r) && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case clean(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// shown reports whether r may be shown as it is. Controls are not, nor what XML
// 1.0 does not allow (section 2.2), nor line separators and the characters that
// change the direction of writing (Unicode Standard Annex 9, section 2).
func shown(r rune) bool {
	switch {
	case unicode.IsControl(r), r == 0xfffe, r == 0xffff:
		return false
	case r == 0x2028, r == 0x2029:
		return false
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return false
	}
	return true
}
