// Package clean makes untrusted text safe to display. A name in a log may contain terminal
// escapes that hide or forge other lines, characters that change the writing direction, and
// bytes that make an SVG or HTML file invalid.
package clean

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EscapeText returns s on one line. Each unsafe character is replaced by its escape in Go's
// syntax, such as \n, \x1b or \u202e.
func EscapeText(s string) string { return escapeExcept(s, "") }

// EscapeMultiline is like EscapeText, but keeps line ends and tabs.
func EscapeMultiline(s string) string { return escapeExcept(s, "\n\t") }

func escapeExcept(s, kept string) string {
	isUnsafe := func(r rune) bool { return !isDisplayable(r) && !strings.ContainsRune(kept, r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, isUnsafe) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch _, size := utf8.DecodeRuneInString(s[i:]); {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n' && isUnsafe(r):
			b.WriteString(`\n`)
		case r == '\t' && isUnsafe(r):
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case isUnsafe(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case isUnsafe(r) && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case isUnsafe(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isDisplayable reports whether r can be displayed safely without an escape. It returns false
// for control characters, characters that XML 1.0 does not allow (section 2.2), line
// separators, and characters that change the writing direction (Unicode Standard Annex 9,
// section 2).
func isDisplayable(r rune) bool {
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
