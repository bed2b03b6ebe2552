package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
)

// Input is the file that a format's Read reads.
type Input struct {
	Path   string    // path of the file, for messages
	Reader io.Reader // the decompressed content
	Size   int64     // size of the content in bytes; 0 if the file is compressed
	Report *Report

	// Lines contains the user's templates, which are tried before all formats.
	Lines []*template.Template

	ReaderAt io.ReaderAt // reads the content at any offset; nil if the file is compressed
}

// AddProblem adds a problem for a line that could not be used; line 0 is the whole file.
func (in *Input) AddProblem(line int, format string, a ...any) {
	in.Report.AddProblem(line, format, a...)
}

// ReadDocument reads the complete content into memory. It returns an error if the content is longer
// than longest bytes.
func (in *Input) ReadDocument(longest int64) ([]byte, error) {
	var text bytes.Buffer
	text.Grow(int(min(in.Size, longest)) + bytes.MinRead)
	if _, err := text.ReadFrom(io.LimitReader(in.Reader, longest+1)); err != nil {
		return nil, fmt.Errorf("read %s: %w", in.Path, err)
	}
	if int64(text.Len()) > longest {
		return nil, fmt.Errorf("the document is longer than %d bytes", longest)
	}
	return text.Bytes(), nil
}

// ReadObject reads the complete content, a JSON object of at most longest bytes, and returns its members.
// It calls readElement, unless it is nil, for each element of the member list instead of keeping it;
// readElement must consume the element. ok is false if the object is damaged, which is a problem.
func (in *Input) ReadObject(longest int64, list string, readElement func(s *scan.JSONReader) error) (members map[string][]byte, ok bool, err error) {
	text := &io.LimitedReader{R: in.Reader, N: longest + 1}
	s := scan.NewJSONReader(text)
	members = map[string][]byte{}
	s.NextNonSpace() // the brace
	damage := s.ReadObject(func(key string, c byte) error {
		if key == list && c == '[' && readElement != nil {
			members[key] = []byte{s.NextNonSpace()}
			return s.ReadList(func(byte) error { return readElement(s) })
		}
		value, err := s.ReadValue(int(longest))
		members[key] = bytes.Clone(value)
		return err
	})
	ok = damage == nil && s.NextNonSpace() == 0
	in.Report.Lines = int64(s.Lines())
	switch {
	case s.Err() != nil:
		return nil, false, fmt.Errorf("read %s: %w", in.Path, s.Err())
	case text.N == 0:
		return nil, false, fmt.Errorf("the document is longer than %d bytes", longest)
	case !ok:
		in.AddProblem(1+s.Lines(), "the JSON object is malformed or torn here")
	}
	return members, ok, nil
}

// SkipLines skips the given number of lines, which continue the current line.
func (in *Input) SkipLines(l *scan.LineReader, lines int) {
	for range lines {
		l.Next()
		in.Report.Lines++
		in.Report.LinesUsed++
	}
}

// ReadLines calls use for each line that is not blank. A line that is too long becomes a problem.
func (in *Input) ReadLines(use func(l *scan.LineReader, line []byte)) error {
	l := scan.NewLineReader(in.Reader, in.Size)
	for line, ok := l.Next(); ok; line, ok = l.Next() {
		in.Report.Lines++
		switch {
		case l.TooLong:
			in.AddProblem(l.Number, "line is longer than %d bytes", scan.MaxLine)
		case len(line) == 0 || (line[0] <= ' ' || line[0] >= 0x80) && len(bytes.TrimSpace(line)) == 0:
			in.Report.AddIgnored(l.Number, ReasonBlank)
		default:
			use(l, line)
		}
	}
	if l.Err != nil {
		return fmt.Errorf("read %s after line %d: %w", in.Path, l.Number, l.Err)
	}
	return nil
}

// Format is a file format of other programs' logs.
type Format struct {
	Name string // value of runs.Run.Kind for runs of this format
	// Recognizes reports whether a file may have this format. head is its first 4096 bytes of
	// content. The path only distinguishes formats whose files begin in the same way.
	Recognizes func(path string, head []byte) bool
	// Read returns the runs of one file, or what the file adds to a run. It records what it did not
	// use in the Report of its input.
	Read func(ctx context.Context, in *Input) ([]*Part, error)
	// Document is set if a file is one document, such as JSON or YAML, which may end without a
	// newline. If it grows, it is read again from its start.
	Document bool
}

// ErrUnknownFormat is returned by Read if the file contains nothing of the format.
var ErrUnknownFormat = errors.New("unknown file format")
