package table

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// Tables in other files: pages in Markdown, and JSON objects with the result of a run.

// The kinds of these files.
const (
	pageKind   = "Markdown page"
	resultKind = "JSON results"
)

// maxDocumentBytes is the largest size of a page or of a file with results.
const maxDocumentBytes = 16 << 20

// DocumentFormats returns the formats of pages and of results. mappings are those of the user.
func DocumentFormats(mappings []Mapping) []record.Format {
	return []record.Format{
		{Name: pageKind, Recognizes: isPage, Document: true, Read: func(_ context.Context, in *record.Input) ([]*record.Part, error) {
			return readPage(in, mappings)
		}},
		{Name: resultKind, Document: true, Recognizes: func(_ string, head []byte) bool { return isResult(head, mappings) }, Read: func(_ context.Context, in *record.Input) ([]*record.Part, error) {
			return readResults(in, mappings)
		}},
	}
}

// isPage reports whether a file is a page in Markdown that begins with text before a table.
func isPage(path string, head []byte) bool {
	ext := filepath.Ext(record.UncompressedName(path))
	return (ext == ".md" || ext == ".markdown") && slices.ContainsFunc(bytes.Split(head, []byte("\n")), isRule)
}

// readDocument returns the complete content.
func readDocument(in *record.Input) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in.Reader, maxDocumentBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", in.Path, err)
	}
	if len(text) > maxDocumentBytes {
		return nil, record.ErrUnknownFormat
	}
	in.Report.Lines = int64(bytes.Count(text, []byte("\n")))
	if len(text) > 0 && text[len(text)-1] != '\n' {
		in.Report.Lines++
	}
	return text, nil
}

// readPart reads a table that is a part of a document, from the given line on.
func readPart(in *record.Input, text []byte, line int, mappings []Mapping) ([]*record.Part, error) {
	report := &record.Report{Path: in.Path}
	parts, err := newTableReader(&record.Input{Path: in.Path, Reader: bytes.NewReader(text), Size: int64(len(text)), Report: report}, mappings).read()
	for i := range report.Unused {
		report.Unused[i].Line += line
	}
	for _, p := range parts {
		p.Line += line
		for i := range p.Run.Epochs {
			p.Run.Epochs[i].Line += line
		}
	}
	r := in.Report
	r.Records += report.Records
	r.LinesUsed += report.LinesUsed
	r.Unused, r.Header, r.Columns = append(r.Unused, report.Unused...), report.Header, report.Columns
	r.Mapped = append(r.Mapped, report.Mapped...)
	for _, a := range report.Assumed {
		r.AddAssumptionOnce("%s", a)
	}
	for _, i := range report.Ignored {
		i.First += line
		r.AddIgnoredLines(i)
	}
	r.UnusedColumns = append(r.UnusedColumns, report.UnusedColumns...)
	return parts, err
}

// readPage reads each table of a page. The runs of a table without a column for the series belong to
// the series that the heading above the table names, if the page has several tables.
func readPage(in *record.Input, mappings []Mapping) ([]*record.Part, error) {
	text, err := readDocument(in)
	if err != nil {
		return nil, err
	}
	var all []*record.Part
	heading, tables := "", 0
	lines := bytes.SplitAfter(text, []byte("\n"))
	for i := 0; i < len(lines); i++ {
		line := bytes.TrimSpace(lines[i])
		if end := i + tableLength(lines[i:]); end > i {
			parts, err := readPart(in, bytes.Join(lines[i:end], nil), i, mappings)
			if err != nil {
				in.Report.AddIgnoredLines(record.IgnoredLines{Reason: "of a table without a known column", Lines: int64(end - i), First: i + 1})
			}
			if len(parts) > 0 {
				tables++
			}
			for _, p := range parts {
				if p.Run.Info.Series == "" {
					p.Run.Info.Series = heading
				}
			}
			all = append(all, parts...)
			i = end - 1
			continue
		}
		if bytes.HasPrefix(line, []byte("#")) {
			heading = strings.TrimSpace(strings.Trim(string(line), "#"))
		}
		if len(line) > 0 || i < len(lines)-1 {
			in.Report.AddIgnored(i+1, "text of a page")
		}
	}
	if len(all) == 0 {
		return nil, record.ErrUnknownFormat
	}
	in.Report.Kind = pageKind
	for i, p := range all {
		if tables == 1 && p.Run.Info.Series == heading {
			p.Run.Info.Series = ""
		}
		if p.Run.Dir = in.Path; i > 0 {
			p.Run.Dir += "#" + strconv.Itoa(i+1)
		}
	}
	return all, nil
}

// tableLength returns the number of lines of a table with which lines begin, or 0.
func tableLength(lines [][]byte) int {
	isRow := func(line []byte) bool { return bytes.IndexByte(line, '|') >= 0 }
	if len(lines) < 3 || !isRow(lines[0]) || !isRule(bytes.TrimSpace(lines[1])) {
		return 0
	}
	n := slices.IndexFunc(lines, func(line []byte) bool { return !isRow(line) })
	if n < 0 {
		n = len(lines)
	}
	return n
}

// isResult reports whether head begins with a JSON object that has the result of a run: its number of
// workers or nodes, and a measurement.
func isResult(head []byte, mappings []Mapping) bool {
	head = bytes.TrimSpace(head)
	if len(head) == 0 || head[0] != '{' {
		return false
	}
	text, objects := resultTable(head)
	if objects == 0 {
		return false
	}
	p, ok := parsePreamble(text, mappings)
	if !ok {
		return false
	}
	s := newSchema(p, afterLines(text, p.lines), mappings)
	return s.layout == rowsAreRuns && s.has(fields.Workers, fields.Nodes)
}

// readResults reads a file with one object, or one per line, as a table with one row per object.
func readResults(in *record.Input, mappings []Mapping) ([]*record.Part, error) {
	text, err := readDocument(in)
	if err != nil {
		return nil, err
	}
	rows, objects := resultTable(text)
	if objects == 0 {
		return nil, record.ErrUnknownFormat
	}
	lines := in.Report.Lines
	parts, err := readPart(in, rows, -1, mappings)
	if err != nil {
		return nil, err
	}
	in.Report.Lines, in.Report.LinesUsed, in.Report.Kind = lines, lines, resultKind
	for _, p := range parts {
		p.Run.Kind = resultKind
	}
	return parts, nil
}

// resultTable returns a table with tabs whose rows are the JSON objects of a text, one for each line or
// one for the text, and the number of objects. The members of an object in an object have the name of
// both, as in gpu/memory.
func resultTable(text []byte) (table []byte, objects int) {
	var header []string
	var rows []map[string]string
	for len(text) > 0 {
		row := map[string]string{}
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		if !addMembers(row, &header, "", line) {
			if clear(row); len(rows) > 0 || !addMembers(row, &header, "", bytes.Join(bytes.Fields(text), []byte(" "))) {
				break
			}
			rest = nil
		}
		rows, text = append(rows, row), bytes.TrimLeft(rest, " \t\r\n")
	}
	if len(rows) == 0 || len(header) == 0 || len(header) > maxColumns {
		return nil, 0
	}
	header = addTotalRate(header, rows)
	var b bytes.Buffer
	b.WriteString(strings.Join(header, "\t") + "\n")
	for _, row := range rows {
		cells := make([]string, len(header))
		for i, name := range header {
			cells[i] = row[name]
		}
		b.WriteString(strings.Join(cells, "\t") + "\n")
	}
	return b.Bytes(), len(rows)
}

// addMembers adds the numbers and texts of an object to a row, and new names to the header. It reports
// whether the text is a complete object.
func addMembers(row map[string]string, header *[]string, prefix string, text []byte) bool {
	doc := scan.ObjectIterator{Text: bytes.TrimSpace(text)}
	for {
		key, value, more := doc.Next()
		if !more {
			return !doc.Bad && len(text) > 0
		}
		name := prefix + string(key)
		switch cell := string(scan.Unquote(value)); {
		case len(value) > 0 && value[0] == '{':
			addMembers(row, header, name+"/", value)
			continue
		case len(value) == 0 || value[0] == '[' || len(cell) > 1000 || strings.ContainsAny(name+cell, "\t\r\n\""):
			continue
		default:
			row[name] = cell
		}
		if !slices.Contains(*header, name) {
			*header = append(*header, name)
		}
	}
}

// addTotalRate gives the throughput of all workers its usual name, or computes it from that of one
// worker, if no name of the header is that of the field.
func addTotalRate(header []string, rows []map[string]string) []string {
	fieldOf := func(name string) string {
		if f, _ := lookUp(name, tableKind); f != nil {
			return f.Name
		}
		return ""
	}
	without := func(name string, words ...string) string {
		for _, w := range words {
			name = strings.TrimPrefix(strings.TrimSuffix(name, "_"+w), w+"_")
		}
		return name
	}
	workers := slices.IndexFunc(header, func(n string) bool { return fieldOf(n) == fields.Workers })
	if slices.ContainsFunc(header, func(n string) bool { return fieldOf(n) == fields.SamplesPerSecond }) {
		return header
	}
	if i := slices.IndexFunc(header, func(n string) bool {
		return fieldOf(without(n, "global", "total", "all", "aggregate", "overall", "mean", "avg")) == fields.SamplesPerSecond
	}); i >= 0 {
		for _, row := range rows {
			row[fields.SamplesPerSecond] = row[header[i]]
		}
		header = slices.Clone(header)
		header[i] = fields.SamplesPerSecond
		return header
	}
	i := slices.IndexFunc(header, func(n string) bool {
		return fieldOf(without(n, "per_gpu", "per_device", "per_worker", "mean", "avg")) == fields.SamplesPerSecond
	})
	if i < 0 || workers < 0 {
		return header
	}
	for _, row := range rows {
		rate, err := strconv.ParseFloat(row[header[i]], 64)
		n, errOfWorkers := strconv.ParseFloat(row[header[workers]], 64)
		if err == nil && errOfWorkers == nil {
			row[fields.SamplesPerSecond] = strconv.FormatFloat(rate*n, 'g', -1, 64)
		}
	}
	return append(header, fields.SamplesPerSecond)
}
