package logread

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Pattern extracts the properties of a run from a file name. They take
// precedence over the content of the file, its folders and its configuration.
type Pattern struct {
	text   string
	re     *regexp.Regexp
	series string // may contain {series}
}

// ParsePattern parses a pattern such as
//
//	log_hvd_{workers}.csv=PyTorch Horovod
//	{series}/{workers}GPU/seed{seed}/out.log
//	job_{workers}_rank{rank}.txt=ResNet-50
//
// The text before the = matches the end of a path and begins at a file or
// folder name. In it, {workers}, {seed} and {rank} match a number, {series}
// matches one or more characters other than a slash, * matches any characters
// other than a slash, and ** matches any characters. The optional text after
// the = is the name of the series, which may contain {series}. Files of one
// folder that differ only in {rank} are one run.
func ParsePattern(text string) (Pattern, error) {
	glob, series, named := strings.Cut(text, "=")
	if glob == "" || named && series == "" {
		return Pattern{}, fmt.Errorf(`parse pattern %q: expected the end of a path, and after = the name of a series, such as "log_hvd_{workers}.csv=PyTorch Horovod"`, text)
	}
	var b strings.Builder
	b.WriteString("(?:^|/)")
	seen := map[string]bool{}
	for rest := glob; rest != ""; {
		var field string
		var length int
		switch {
		case strings.HasPrefix(rest, "**"):
			field, length = ".*", 2
		case rest[0] == '*':
			field, length = "[^/]*", 1
		case rest[0] == '{':
			end := strings.IndexByte(rest, '}')
			name := ""
			if end > 0 {
				name = rest[1:end]
			}
			switch name {
			case "workers", "seed", "rank":
				field = "(?P<" + name + ">[0-9]+)"
			case "series":
				field = "(?P<series>[^/]+?)"
			default:
				return Pattern{}, fmt.Errorf("parse pattern %q: unknown field %q; use {workers}, {seed}, {rank} or {series}", text, rest[:max(end+1, 1)])
			}
			if seen[name] {
				return Pattern{}, fmt.Errorf("parse pattern %q: duplicate field {%s}; use each field once", text, name)
			}
			seen[name] = true
			length = end + 1
		default:
			length = strings.IndexAny(rest, "*{")
			if length < 0 {
				length = len(rest)
			}
			field = regexp.QuoteMeta(rest[:length])
		}
		b.WriteString(field)
		rest = rest[length:]
	}
	b.WriteByte('$')
	if _, rest, other := strings.Cut(strings.ReplaceAll(series, "{series}", ""), "{"); other {
		if name, _, closed := strings.Cut(rest, "}"); closed {
			rest = name + "}"
		}
		return Pattern{}, fmt.Errorf("parse pattern %q: unknown field %q after the =; use {series}", text, "{"+rest)
	}
	if strings.Contains(series, "{series}") && !seen["series"] {
		return Pattern{}, fmt.Errorf("parse pattern %q: {series} after the = needs {series} before the =", text)
	}
	re, err := regexp.Compile(b.String())
	if err != nil {
		return Pattern{}, fmt.Errorf("parse pattern %q: %w", text, err)
	}
	return Pattern{text: text, re: re, series: series}, nil
}

// String returns the text from which the pattern was parsed.
func (p Pattern) String() string { return p.text }

// nameFields contains the fields that a pattern captured in a path. A number
// that the pattern does not contain is -1.
type nameFields struct {
	series              string
	workers, seed, rank int
	rest                string // the path without the rank
	pattern             string // text of the pattern
}

// match returns the fields that the pattern captures in path. ok is false if it
// does not match. The name of a compressed file matches with and without the
// extension of its compression.
func (p Pattern) match(path string) (nameFields, bool) {
	path = filepath.ToSlash(path)
	m := p.re.FindStringSubmatchIndex(path)
	if m == nil {
		if bare := record.UncompressedName(path); bare != path {
			return p.match(bare)
		}
		return nameFields{}, false
	}
	t := nameFields{series: p.series, workers: -1, seed: -1, rank: -1, rest: path, pattern: p.text}
	for i, name := range p.re.SubexpNames() {
		if i == 0 || name == "" {
			continue
		}
		text := path[m[2*i]:m[2*i+1]]
		n, err := strconv.Atoi(text)
		switch name {
		case "series":
			if p.series == "" {
				t.series = text
			} else {
				t.series = strings.ReplaceAll(p.series, "{series}", text)
			}
			continue
		case "workers":
			t.workers = n
		case "seed":
			t.seed = n
		case "rank":
			t.rank = n
			t.rest = path[:m[2*i]] + "*" + path[m[2*i+1]:]
		}
		if err != nil { // too many digits for an int
			return nameFields{}, false
		}
	}
	return t, true
}

// addClaims adds what the fields state about p's run.
func (t nameFields) addClaims(p *record.Part) {
	if t.workers > 0 {
		p.AddClaim(runs.PropertyWorkers, int64(t.workers), runs.SourceUser, t.pattern)
	}
	if t.seed >= 0 {
		p.AddClaim(runs.PropertySeed, int64(t.seed), runs.SourceUser, t.pattern)
	}
	if t.series != "" {
		p.AddTextClaim(runs.PropertySeries, t.series, runs.SourceUser, t.pattern)
	}
}
