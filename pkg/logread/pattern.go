package logread

import "lockstep/pkg/logread/internal/pattern"

// Pattern states the properties of runs from the paths of their files. They take
// precedence over the content of the file, its folders and its configuration.
type Pattern struct {
	parsed pattern.Pattern
}

// ParsePattern parses a pattern such as
//
//	log_hvd_{workers}.csv=PyTorch Horovod
//	{series}/{workers}GPU/seed{seed}/out.log
//	job_{workers}_rank{rank}.txt=ResNet-50
//	*.out=workers:1,series:native
//	run_{nodes}n.out=workers:{nodes}*8
//
// The text before the = matches the end of a path and begins at a file or
// folder name. In it, {workers}, {nodes}, {rank}, {seed} and {batch} (per worker)
// match a number, {series} and {model} match one or more characters other than
// a slash, * matches any characters other than a slash, and ** matches any
// characters. Files of one folder that differ only in {rank} are one run.
//
// The optional text after the = is either the name of the series, which may
// contain {series}, or a list of properties and their values. A value is a
// number, a field, or a product of them such as {nodes}*8; a series or a model
// is a text that may contain fields.
//
// Numbers of workers and nodes above 262144, and of 0, are refused.
func ParsePattern(text string) (Pattern, error) {
	p, err := pattern.Parse(text)
	return Pattern{p}, err
}

// String returns the text from which the pattern was parsed.
func (p Pattern) String() string { return p.parsed.String() }
