package series

import (
	"path/filepath"
	"regexp"
	"strings"
)

var plainNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// IsPlain reports whether name starts with a letter or digit and contains only letters, digits and
// ._-.
func IsPlain(name string) bool { return plainNamePattern.MatchString(name) }

// PlainNameFromPath derives a plain name from the path of a file: the file's name without folder and
// extension, with other characters replaced, or "run" if nothing remains.
func PlainNameFromPath(path string) string {
	base := filepath.Base(path)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	base = strings.TrimLeft(notPlain.ReplaceAllString(base, "-"), "._-")
	if base == "" {
		return "run"
	}
	return base
}

var (
	notPlain    = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
	interpreter = regexp.MustCompile(`^(python[0-9.]*|sh|bash|julia|Rscript|perl|ruby)$`)
)

// ProgramName returns a short name for a command: for "python train.py" it is "train".
func ProgramName(command []string) string {
	if interpreter.MatchString(filepath.Base(command[0])) {
		for _, arg := range command[1:] {
			if arg == "-c" {
				break // the next argument is code, not a file name
			}
			if !strings.HasPrefix(arg, "-") {
				return PlainNameFromPath(arg)
			}
		}
	}
	return PlainNameFromPath(command[0])
}
