package process

import "strings"

// QuoteShellArgument returns text as one word for a POSIX shell.
func QuoteShellArgument(text string) string {
	safe := func(c rune) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_-./:,+@%", c)
	}
	if text != "" && !strings.ContainsFunc(text, func(c rune) bool { return !safe(c) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
