package table

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// Tables in other files: pages in Markdown, and JSON objects with the result of a run.

// The kinds of documents that contain tables or results.
const (
	pageKind   = "Markdown page"
	resultKind = "JSON results"
)

const maxTableDocumentBytes = 16 << 20

// DocumentFormats returns the formats of Markdown pages and of JSON results. mappings are the
// user's column mappings.
func DocumentFormats(mappings []ColumnMapping) []record.Format {
	return []record.Format{
		{Name: pageKind, Recognizes: isMarkdownPage, Document: true, Read: func(_ context.Context, in *record.Input) ([]*record.Part, error) {
			return readMarkdownPage(in, mappings)
		}},
		{Name: resultKind, Document: true, Recognizes: func(_ string, head []byte) bool { return isJSONResult(head, mappings) }, Read: func(_ context.Context, in *record.Input) ([]*record.Part, error) {
			return readJSONResults(in, mappings)
		}},
	}
}

// isMarkdownPage reports whether a file is a Markdown page with a table in head.
func isMarkdownPage(path string, head []byte) bool {
	ext := filepath.Ext(record.UncompressedName(path))
	return (ext == ".md" || ext == ".markdown") && slices.ContainsFunc(bytes.Split(head, []byte("\n")), isDividerLine)
}

// readEmbeddedTable reads a table that is part of a document. in.Report.Lines is the number of
// lines before the table.
func readEmbeddedTable(in *record.Input, text []byte, mappings []ColumnMapping) ([]*record.Part, error) {
	report, before := &record.Report{Path: in.Path}, int(in.Report.Lines)
	parts, err := newTableReader(&record.Input{Path: in.Path, Reader: bytes.NewReader(text), Size: int64(len(text)), Report: report}, mappings).read()
	for _, p := range parts {
		p.Line += before
		for i := range p.Run.Epochs {
			p.Run.Epochs[i].Line += before
		}
	}
	r := in.Report
	r.Append(report)
	r.Header, r.Columns, r.Mapped = report.Header, report.Columns, append(r.Mapped, report.Mapped...)
	r.UnusedColumns = append(r.UnusedColumns, report.UnusedColumns...)
	return parts, err
}

// readMarkdownPage reads each table of a page. If there are several, the heading above a table names the
// series of its runs, unless a column does. Another table with the same series gets a number.
func readMarkdownPage(in *record.Input, mappings []ColumnMapping) ([]*record.Part, error) {
	text, err := in.ReadDocument(maxTableDocumentBytes)
	if err != nil {
		return nil, err
	}
	var all []*record.Part
	heading, tables, r := "", 0, in.Report
	last, numbers := map[string]int{}, map[string]int{} // by series: its last table, and the number of its tables
	lines := slices.Collect(bytes.Lines(text))
	for i := 0; i < len(lines); {
		n := countTableLines(lines[i:])
		if n == 0 {
			if line := string(bytes.TrimSpace(lines[i])); strings.HasPrefix(line, "#") {
				heading = strings.Trim(line, "# ")
			}
			r.Lines++
			r.AddIgnored(i+1, "text of a page")
			i++
			continue
		}
		parts, err := readEmbeddedTable(in, bytes.Join(lines[i:i+n], nil), mappings)
		if err != nil {
			r.AddIgnoredLines(record.IgnoredLines{Reason: "of a table without a known column", Lines: int64(n), First: i + 1})
		}
		if len(parts) > 0 {
			tables++
		}
		for _, p := range parts {
			name := cmp.Or(p.Run.Info.Series, heading)
			if last[name] < tables {
				last[name], numbers[name] = tables, numbers[name]+1
			}
			if p.Run.Info.Series = name; numbers[name] > 1 {
				file := filepath.Base(record.UncompressedName(in.Path))
				p.Run.Info.Series = fmt.Sprintf("%s (%d)", cmp.Or(name, strings.TrimSuffix(file, filepath.Ext(file))), numbers[name])
			}
		}
		all = append(all, parts...)
		i += n
		r.Lines = int64(i)
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

// countTableLines returns the number of lines in the table at the beginning of lines, or 0 if there is
// none.
func countTableLines(lines [][]byte) int {
	isRow := func(line []byte) bool { return bytes.IndexByte(line, '|') >= 0 }
	if len(lines) < 3 || !isRow(lines[0]) || !isDividerLine(bytes.TrimSpace(lines[1])) {
		return 0
	}
	n := slices.IndexFunc(lines, func(line []byte) bool { return !isRow(line) })
	if n < 0 {
		n = len(lines)
	}
	return n
}

// isJSONResult reports whether head begins with a JSON object of the result of a run: workers or nodes,
// and a measurement.
func isJSONResult(head []byte, mappings []ColumnMapping) bool {
	head = bytes.TrimSpace(head)
	if len(head) == 0 || head[0] != '{' {
		return false
	}
	text, objects := tabulateJSONObjects(head)
	if objects == 0 {
		return false
	}
	p, ok := parsePreamble(text, mappings)
	if !ok {
		return false
	}
	s := newSchema(p, skipLines(text, p.lines), mappings)
	return s.layout == rowsAreRuns && s.hasAnyField(fields.Workers, fields.Nodes)
}

// readJSONResults reads a file with one object, or one per line, as a table with one row per object.
func readJSONResults(in *record.Input, mappings []ColumnMapping) ([]*record.Part, error) {
	text, err := in.ReadDocument(maxTableDocumentBytes)
	if err != nil {
		return nil, err
	}
	rows, objects := tabulateJSONObjects(text)
	if objects == 0 {
		return nil, record.ErrUnknownFormat
	}
	in.Report.Lines = -1 // the header is no line of the file
	parts, err := readEmbeddedTable(in, rows, mappings)
	if err != nil {
		return nil, err
	}
	lines := int64(len(slices.Collect(bytes.Lines(text))))
	in.Report.Lines, in.Report.LinesUsed, in.Report.Kind = lines, lines, resultKind
	for _, p := range parts {
		p.Run.Kind = resultKind
	}
	return parts, nil
}

// tabulateJSONObjects converts the JSON objects in text to a tab-separated table with one row per
// object. It also returns the number of objects. The column of a member of an inner object has both
// names, as in gpu/memory, unless the inner object is a section such as results.
func tabulateJSONObjects(text []byte) (table []byte, objects int) {
	var header []string
	var rows []map[string]string
	for len(text) > 0 {
		row := map[string]string{}
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		if !addJSONMembers(row, &header, "", line) {
			if clear(row); len(rows) > 0 || !addJSONMembers(row, &header, "", bytes.Join(bytes.Fields(text), []byte(" "))) {
				break
			}
			rest = nil
		}
		rows, text = append(rows, row), bytes.TrimLeft(rest, " \t\r\n")
	}
	if len(rows) == 0 || len(header) == 0 || len(header) > maxTableColumns {
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

// addJSONMembers adds the numbers and texts of an object to a row, and new names to the header. It
// returns false if the object is incomplete.
func addJSONMembers(row map[string]string, header *[]string, prefix string, text []byte) bool {
	doc := scan.ObjectIterator{Text: bytes.TrimSpace(text)}
	for key, value := range doc.Members() {
		name := prefix + string(key)
		switch cell := string(scan.UnquoteJSON(value)); {
		case len(value) > 0 && value[0] == '{':
			if isResultSection(string(key)) {
				addJSONMembers(row, header, prefix, value)
			} else {
				addJSONMembers(row, header, name+"/", value)
			}
			continue
		case len(value) == 0 || value[0] == '[' && !(mayListDevices(string(key)) && isDeviceList(cell)) || len(cell) > 1000 || strings.ContainsAny(name+cell, "\t\r\n\""):
			continue
		default:
			row[name] = cell
		}
		if !slices.Contains(*header, name) {
			*header = append(*header, name)
		}
	}
	return !doc.Bad && len(text) > 0
}

// isResultSection reports whether an inner object with the given key contains values of the run, and not
// those of a monitor, for example.
func isResultSection(key string) bool {
	return slices.Contains([]string{"config", "args", "arguments", "params", "parameters", "settings", "hparams", "result", "results", "metrics", "summary", "timing", "performance"}, strings.ToLower(key))
}

// addTotalRate adds the throughput of all workers if the header has only one worker's.
func addTotalRate(header []string, rows []map[string]string) []string {
	indexOf := func(field string, ends ...string) int {
		return slices.IndexFunc(header, func(name string) bool {
			for _, end := range ends {
				if base, ok := strings.CutSuffix(name, end); ok {
					f, _ := lookUpColumn(base, tableKind)
					return f != nil && f.Name == field
				}
			}
			return false
		})
	}
	rates, workers := indexOf(fields.SamplesPerSecond, "_per_gpu", "_per_device", "_per_worker"), indexOf(fields.Workers, "")
	if rates < 0 || workers < 0 || indexOf(fields.SamplesPerSecond, "") >= 0 {
		return header
	}
	for _, row := range rows {
		rate, err := strconv.ParseFloat(row[header[rates]], 64)
		n, errOfWorkers := strconv.ParseFloat(row[header[workers]], 64)
		if err == nil && errOfWorkers == nil {
			row[fields.SamplesPerSecond] = strconv.FormatFloat(rate*n, 'g', -1, 64)
		}
	}
	return append(header, fields.SamplesPerSecond)
}
