package table

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// The general reader reads the tables of Lightning's and Keras' CSVLogger, of Ultralytics, the exports
// of W&B, MLflow and TensorBoard, the output of nvidia-smi --query-gpu, the job logs of GNU parallel,
// and any other table whose columns have names in the table of fields or that the user has mapped.
//
//	epoch,step,train_loss,val_acc,val_f1,val_loss
//	1,49,0.8741154670715332,,,
//	1,49,,0.52,0.48,0.91
//
//	# ResNet-50 on ImageNet; source: …
//	series,workers,wall_seconds
//	ours,1,20531.864
//	ours,4,5355.923

// Number of bytes of the text that the survey of a table reads. The larger number is for tables
// that may have decimal commas, since a single cell can decide how its column is read.
const (
	surveyBytes     = 1 << 14
	markSurveyBytes = 16 << 20
)

// isTable returns a function that reports whether a file begins like a table with a known column.
func isTable(mappings []ColumnMapping) func(string, []byte) bool {
	return func(_ string, head []byte) bool {
		p, ok := parsePreamble(head, mappings)
		return ok && p.namesField(mappings) && newSchema(p, completeLines(skipLines(head, p.lines)), mappings).layout != unknownLayout
	}
}

// hasMappedColumn returns a function that reports whether a file begins like a table with a
// column that the user has mapped.
func hasMappedColumn(mappings []ColumnMapping) func(string, []byte) bool {
	return func(_ string, head []byte) bool {
		p, ok := parsePreamble(head, mappings)
		return ok && len(newSchema(p, skipLines(head, p.lines), mappings).mapped) > 0
	}
}

func skipLines(text []byte, n int) []byte {
	for range n {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return text
}

func readTable(mappings []ColumnMapping) func(context.Context, *record.Input) ([]*record.Part, error) {
	return func(_ context.Context, in *record.Input) ([]*record.Part, error) {
		return newTableReader(in, mappings).read()
	}
}

type tableReader struct {
	*schema
	in       *record.Input
	l        *scan.LineReader
	mappings []ColumnMapping

	cells   []scan.Cell // of the current row
	place   rowPosition // of the current row
	values  []float64   // of the current row, by column; NaN for a text or an unmeasured value
	present []bool      // whether the cell of a number is not empty
	order   []*tableRun
	byKey   map[string]*tableRun
	key     []byte
	last    *tableRun // of the row before, which had lastKey
	lastKey []byte
	ranks   map[string]int // numbers of the GPUs whose rows have no number
	metrics map[string]cellMetric

	rows        int
	zeroEpoch   bool // a row has epoch 0
	fractional  bool // epochs have fractions
	duplicates  bool // epochs have several rows, of which only the first is used
	sparse      bool // a row has an empty cell
	headerAgain int  // line of a header in the middle of the table; 0 before it
	otherHeader int  // line at which a table with other columns begins; 0 before it
	// endsWithDelimiter is set if each row, unlike the header, ends with a delimiter.
	endsWithDelimiter bool
	lastDecimals      int // smallest number of decimals in the last column; -1: no row yet
}

// cellMetric is the meaning of a name that a cell contains: its field, or nil, and the factor of
// its unit.
type cellMetric struct {
	field  *fields.Field
	factor float64
}

func newTableReader(in *record.Input, mappings []ColumnMapping) *tableReader {
	return &tableReader{in: in, mappings: mappings, byKey: map[string]*tableRun{}, ranks: map[string]int{}, metrics: map[string]cellMetric{}, lastDecimals: -1}
}

// surveyTable reads the header of the table and surveys its rows. It returns
// record.ErrUnknownFormat if the text is not a table or has no known column.
func (t *tableReader) surveyTable() error {
	size := surveyBytes
	if t.in.Size > 0 {
		size = int(min(t.in.Size+1, surveyBytes))
	}
	text := make([]byte, size)
	n, err := io.ReadFull(t.in.Reader, text)
	text = text[:n]
	surveyed := text
	if err == nil {
		const longestNumber = 64
		rest := func(r io.ReaderAt) io.Reader { return io.NewSectionReader(r, int64(n-longestNumber), markSurveyBytes) }
		if p, ok := parsePreamble(text, t.mappings); ok && (p.form.delimiter != ',' || bytes.IndexByte(skipLines(text, p.lines), '"') >= 0) && (t.in.ReaderAt == nil || mayHaveLocalizedNumbers(rest(t.in.ReaderAt))) {
			all := bytes.NewBuffer(make([]byte, 0, n+int(min(t.in.Size, markSurveyBytes))+bytes.MinRead))
			all.Write(text)
			if _, err = all.ReadFrom(io.LimitReader(t.in.Reader, markSurveyBytes)); all.Len() < n+markSurveyBytes && err == nil {
				err = io.EOF
			}
			if text = all.Bytes(); mayHaveLocalizedNumbers(rest(bytes.NewReader(text))) {
				surveyed = text
			}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("read %s: %w", t.in.Path, err)
	}
	t.in.Reader = io.MultiReader(bytes.NewReader(text), t.in.Reader)
	p, ok := parsePreamble(text, t.mappings)
	if !ok {
		return record.ErrUnknownFormat
	}
	rows := skipLines(surveyed, p.lines)
	if err == nil || len(surveyed) < len(text) { // the last line continues
		rows = completeLines(rows)
	}
	t.schema = newSchema(p, rows, t.mappings)
	t.in.Report.Header, t.in.Report.Mapped = t.header, t.mapped
	if t.counter != "" {
		return fmt.Errorf("column %q may number the repeats or the epochs of a run: state it with --columns 'seed=%[1]s' or 'epoch=%[1]s'", t.counter)
	} else if t.layout == unknownLayout {
		return record.ErrUnknownFormat
	}
	t.in.Report.Kind = t.kind
	for _, a := range t.assumed {
		t.in.Report.AddAssumption("%s", a)
	}
	if t.width > maxTableColumns {
		t.in.AddProblem(t.lines, "the table has %d columns; only the first %d are used", t.width, maxTableColumns)
	}
	t.values, t.present = make([]float64, len(t.columns)), make([]bool, len(t.columns))
	return nil
}

// mayHaveLocalizedNumbers reports whether a text may have decimal commas or separators of thousands: it has a
// comma, or two points with three characters between them.
func mayHaveLocalizedNumbers(r io.Reader) bool {
	const size, words = 1 << 16, 12 // bytes of the two overlapping words of one comparison
	buffer := make([]byte, size+words)
	for kept := 0; ; {
		n, err := r.Read(buffer[kept:size])
		text := buffer[:kept+n]
		if bytes.IndexByte(text, ',') >= 0 {
			return true
		}
		clear(buffer[len(text):][:words])
		for i := 0; i < len(text); i += 8 {
			const points, ones = 0x2e2e2e2e2e2e2e2e, 0x0101010101010101
			both := (binary.LittleEndian.Uint64(buffer[i:]) ^ points) | (binary.LittleEndian.Uint64(buffer[i+4:]) ^ points)
			if (both-ones)&^both&(ones<<7) != 0 { // a byte is zero: it is a point, and so is the one 4 bytes after it
				return true
			}
		}
		if err != nil {
			return false // readLine reports an error of the file
		}
		kept = copy(buffer, text[max(len(text)-4, 0):])
	}
}

// completeLines returns text without an incomplete last line, unless it is the only line.
func completeLines(text []byte) []byte {
	if i := bytes.LastIndexByte(text, '\n'); i >= 0 {
		return text[:i+1]
	}
	return text
}

func (t *tableReader) read() ([]*record.Part, error) {
	if err := t.surveyTable(); err != nil {
		return nil, err
	}
	if err := t.in.ReadLines(t.readLine); err != nil {
		return nil, err
	}
	return t.finish(), nil
}

func (t *tableReader) readLine(l *scan.LineReader, line []byte) {
	in, number := t.in, l.Number
	t.l = l
	switch {
	case t.header != nil && number == t.lines, t.form.isDivider(line):
		in.Report.LinesUsed++
		return
	case scan.SkipBlanks(line)[0] == '#':
		in.Report.AddIgnored(number, "comment")
		return
	case t.form.delimiter == ' ' && isTableSize(bytes.TrimSpace(line)):
		in.Report.AddIgnored(number, "size of the table")
		return
	case number <= t.lines:
		in.Report.AddIgnored(number, "the delimiter of the table")
		return
	}
	if t.otherHeader > 0 {
		in.Report.AddIgnored(number, "of another table")
		return
	}
	if err := t.splitRow(line); err != nil && !(l.Ended && t.header != nil && mayBeHeader(t.cells)) {
		in.AddProblem(number, "%v", err)
		return
	} else if err != nil || (t.numberAt < 0 || t.cells[t.numberAt].Length == 0) && t.isOtherHeader() {
		t.otherHeader = number
		in.AddProblem(number, "a table with other columns begins here; it is not read: move it to a file of its own")
		return
	}
	if t.isHeader() {
		t.headerAgain = number
		in.Report.LinesUsed++
		return
	}
	if !l.Ended && !t.form.bars && (t.isTorn() || in.Report.Truncated) {
		in.AddProblem(number, "last line is torn: %.80q", line)
		return
	}
	if err := t.readRow(number); err != nil {
		in.AddProblem(number, "%v", err)
		return
	}
	if !l.Ended && !t.form.bars {
		in.Report.AddAssumption("the last line has no line end; its last value %.40q is taken as complete", t.cells[len(t.cells)-1].Text)
	}
}

// splitRow splits a line into t.cells. A cell in quotes may continue on the next lines.
func (t *tableReader) splitRow(line []byte) error {
	var err error
	t.cells, err = t.form.splitCells(t.cells[:0], line)
	if err != nil {
		row, lines := t.l.JoinRow(line, func(row []byte) error { _, err := t.form.splitCells(nil, row); return err }, err)
		if cells, again := t.form.splitCells(nil, row); lines > 0 && again == nil && len(cells) == len(t.columns) {
			t.cells, err = cells, nil
			t.in.SkipLines(t.l, lines)
		}
	}
	if err != nil {
		return err
	}
	n := len(t.cells)
	if n == len(t.columns)+1 && len(t.cells[n-1].Text) == 0 && (t.rows == 0 || t.endsWithDelimiter) { // as each row
		t.endsWithDelimiter = true
		n--
		t.cells = t.cells[:n]
	}
	if n != len(t.columns) {
		if !t.l.Ended {
			return fmt.Errorf("last line is torn: %.80q", line)
		}
		return fmt.Errorf("expected %d cells, got %d: %.80q", len(t.columns), n, line)
	}
	return nil
}

func (t *tableReader) isHeader() bool {
	return t.header != nil && string(t.cells[0].Text) == t.header[0] && slices.EqualFunc(t.cells, t.header, func(c scan.Cell, name string) bool { return string(c.Text) == name })
}

// mayBeHeader reports whether the cells of a row with another number of cells than the table
// can be another header: all are texts.
func mayBeHeader(cells []scan.Cell) bool {
	return len(cells) > 1 && !slices.ContainsFunc(cells, func(c scan.Cell) bool { return len(c.Text) == 0 || !isTextCell(c) || scan.IsDigit(c.Text[0]) })
}

// isOtherHeader reports whether the current row is another table's header: no cell of at least two
// columns of numbers is a number, and not all cells are names of this table.
func (t *tableReader) isOtherHeader() bool {
	if t.header == nil {
		return false
	}
	names := 0
	for i := range t.cells {
		if i >= len(t.columns) || t.columns[i].kind == fields.Text || t.columns[i].kind == fields.Moment {
			continue
		}
		cell := &t.cells[i]
		if cell.Length == len(cell.Text) || scan.IsDigit(cell.Text[0]) || looksNumeric(cell.Text) {
			return false
		}
		names++
	}
	return names >= 2 && !t.isHeader()
}

// isTorn reports whether the last cell of a last line without line end appears to be cut: it is
// empty, or has fewer decimals than its column had in all other rows.
func (t *tableReader) isTorn() bool {
	cell := &t.cells[len(t.cells)-1]
	last := cell.Text
	if t.kind == lightningKind || len(last) == 0 && (t.lastDecimals >= 0 || t.rows == 0) {
		return true
	}
	return t.lastDecimals >= 3 && len(last) > 0 && scan.IsDigit(last[len(last)-1]) && countDecimals(cell) < t.lastDecimals
}

func countDecimals(c *scan.Cell) int {
	i := bytes.IndexByte(c.Text, '.')
	if c.Length < len(c.Text) { // a comma may be the decimal mark
		i = max(bytes.LastIndexByte(c.Text, '.'), bytes.LastIndexByte(c.Text, ','))
	}
	if i < 0 {
		return 0
	}
	return len(c.Text) - 1 - i
}

// Format returns the format of tables with at least one known column. mappings are the user's.
func Format(mappings []ColumnMapping) record.Format {
	return record.Format{Name: tableKind, Recognizes: isTable(mappings), Read: readTable(mappings)}
}

// MappedFormats returns the format of tables with a column that the user has mapped, which precedes
// the formats of known programs, or nil without mappings.
func MappedFormats(mappings []ColumnMapping) []record.Format {
	if len(mappings) == 0 {
		return nil
	}
	return []record.Format{{Name: tableKind, Recognizes: hasMappedColumn(mappings), Read: readTable(mappings)}}
}
