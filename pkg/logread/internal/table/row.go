package table

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"time"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

const noEpoch = -1

type rowPosition struct {
	line     int
	epoch    int     // number as in the table plus one, or noEpoch
	position float64 // in epochs, of the end of the row
	step     int64   // -1 if the row has none
	rank     int     // -1 if the row has none
	time     float64
	split    string // "val", "test", another name, or "" for the training
}

func (t *tableReader) readRow(line int) error {
	if err := t.parseCells(); err != nil {
		return err
	}
	place := &t.place
	place.line, place.epoch, place.position, place.step, place.rank, place.split = line, noEpoch, 0, -1, -1, ""
	if place.time = math.NaN(); t.timeAt >= 0 {
		place.time = t.values[t.timeAt]
	}
	if err := t.parseRowPosition(place); err != nil {
		return err
	}
	run, err := t.findOrAddRun(place)
	if err != nil {
		return err
	}
	good := t.storeRow(run, place)
	t.rows++
	if good {
		t.in.Report.LinesUsed++
		if t.layout == rowsAreEpochs || t.layout == rowsAreRuns {
			t.in.Report.Records++
		}
	} else {
		t.in.Report.AddIgnored(line, "a row without a value")
	}
	if last := &t.cells[len(t.cells)-1]; len(last.Text) > 0 && scan.IsDigit(last.Text[len(last.Text)-1]) {
		if d := countDecimals(last); t.lastDecimals < 0 || d < t.lastDecimals {
			t.lastDecimals = d
		}
	}
	return nil
}

func (t *tableReader) parseCells() error {
	for i := range t.columns {
		c, cell := &t.columns[i], &t.cells[i]
		t.present[i] = len(cell.Text) > 0 && (cell.Length > 0 || !isUnmeasured(cell.Text))
		if t.values[i] = math.NaN(); !t.present[i] || c.unused != "" {
			t.sparse = t.sparse || len(cell.Text) == 0
			continue
		}
		v, ok := cell.Number*c.factor, c.plain && cell.Length == len(cell.Text)
		switch {
		case ok: // usually
		case c.kind == fields.Text:
			continue
		case c.devices:
			v = float64(record.CountDevices(string(cell.Text)))
		case c.kind == fields.Moment:
			if v, ok = c.parseTimestamp(cell); !ok {
				return fmt.Errorf("column %q: expected a date and time, got %.40q", c.name, cell.Text)
			}
		default:
			if v, ok = c.parseNumber(cell); !ok && c.empty && c.field == "" {
				c.kind, c.empty, c.setting, c.toCurve = fields.Text, false, true, false
				continue
			}
			if c.empty = false; !ok && c.field == "" && !c.mapped {
				t.in.AddProblem(t.l.Number, "column %q: expected a number, got %.40q; it is not used", c.name, cell.Text)
				t.present[i] = false
				continue
			} else if !ok {
				return fmt.Errorf("column %q: expected a number, got %.40q", c.name, cell.Text)
			}
		}
		if t.values[i] = v; c.isTime && !record.IsPlausibleTime(v) {
			t.dropInvalidTime(c, i)
		}
	}
	return nil
}

// parseNumber parses a number and converts it to the unit of the field. It is fast if the cell has
// the same unit as the previous cell of the column.
func (c *column) parseNumber(cell *scan.Cell) (v float64, ok bool) {
	if cell.Length > 0 && c.form == (numberFormat{decimal: '.'}) {
		switch rest := cell.Text[cell.Length:]; {
		case len(rest) == 0:
			return cell.Number * c.factor, true
		case string(rest) == c.unit:
			return cell.Number * c.scale, true
		case !bytes.ContainsAny(rest, ".0123456789"):
			if c.scale, ok = unitFactor(c.kind, string(bytes.TrimSpace(rest))); !ok {
				c.scale = c.factor
			}
			v, ok = c.form.parseMeasurement(c.kind, c.factor, cell.Text)
			if c.unit = ""; ok {
				c.unit = string(rest)
			}
			return v, ok
		}
	}
	return c.form.parseMeasurement(c.kind, c.factor, cell.Text)
}

// dropInvalidTime drops the value at index i of the current row, which cannot be a time or a rate
// in column c, and reports a problem. It keeps a finite time of an epoch, which finish checks,
// because the column may contain times since the start.
func (t *tableReader) dropInvalidTime(c *column, i int) {
	v := t.values[i]
	if (c.field == fields.EpochSeconds || c.field == fields.Time) && !math.IsNaN(v) && !math.IsInf(v, 0) {
		return
	}
	t.in.AddProblem(t.l.Number, "column %q: got %g, which is no possible value; it is not used", c.name, v)
	t.values[i], t.present[i] = math.NaN(), false
}

func (t *tableReader) fieldNumber(name string) float64 {
	if i, ok := t.at[name]; ok {
		return t.values[i]
	}
	return math.NaN()
}

func (t *tableReader) fieldText(name string) string {
	if i, ok := t.at[name]; ok && t.present[i] {
		return strings.ToValidUTF8(string(t.cells[i].Text), "\ufffd")
	}
	return ""
}

// fieldCount returns the value of a field in the current row, which must be an integer from least
// to most. ok is false if the cell is empty.
func (t *tableReader) fieldCount(name string, least, most float64) (n int, ok bool, err error) {
	if i, known := t.at[name]; known && t.present[i] {
		n, err = t.columnCount(i, least, most)
		return n, err == nil, err
	}
	return 0, false, nil
}

// columnCount is like fieldCount for the column at index i, whose cell must not be empty.
func (t *tableReader) columnCount(i int, least, most float64) (int, error) {
	if v := t.values[i]; v >= least && v <= most && v == float64(int64(v)) {
		return int(v), nil
	}
	return 0, fmt.Errorf("column %q: expected a whole number from %.0f to %.0f, got %.40q", t.columns[i].name, least, most, t.cells[i].Text)
}

// parseRowPosition sets the epoch, step, rank and split that the current row has.
func (t *tableReader) parseRowPosition(p *rowPosition) (err error) {
	if i := t.epochAt; i >= 0 && t.present[i] {
		if v := t.values[i]; t.layout == rowsAreSteps && (t.fractional || v > 0 && v != math.Trunc(v)) { // half of the first epoch is done at 0.5
			p.position = v
			t.values[i] = max(math.Ceil(v-1e-6)-1, 0)
			t.fractional, t.zeroEpoch = true, true
			t.in.Report.AddAssumptionOnce("fractions of epochs belong to the epoch that they complete")
		}
		if p.epoch, err = t.columnCount(i, 0, 1<<31-2); err != nil {
			return err
		}
		p.epoch++
		t.zeroEpoch = t.zeroEpoch || p.epoch == 1
		if p.position == 0 {
			p.position = float64(p.epoch)
		}
	}
	if i := t.stepAt; i >= 0 && t.present[i] {
		n, err := t.columnCount(i, 0, 1<<53)
		if p.step = int64(n); err != nil {
			return err
		}
	}
	if i := t.rankAt; i >= 0 && t.present[i] {
		if p.rank, err = t.columnCount(i, 0, record.MaxWorkers-1); err != nil {
			return err
		}
	}
	if t.splitAt >= 0 {
		text := string(t.cells[t.splitAt].Text)
		known := false
		if p.split, known = partOfData(text); !known && t.namesTraining { // such as val_unseen
			p.split = strings.ToValidUTF8(text, "\ufffd")
		}
	}
	if t.kind == nvidiaKind && p.rank < 0 {
		p.rank = t.findGPUIndex()
	}
	return nil
}

// findGPUIndex returns the index of the GPU in the current row of nvidia-smi's output. If the rows
// have no index, it numbers the GPUs in the order in which their bus IDs or identifiers first
// occur. It returns -1 if the table has none of these columns.
func (t *tableReader) findGPUIndex() int {
	for i := range t.columns {
		base, _ := splitUnit(t.columns[i].name)
		switch base {
		case "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial", "gpu_serial", "pci.bus":
			id := string(t.cells[i].Text)
			n, known := t.ranks[id]
			if !known {
				n = len(t.ranks)
				t.ranks[id] = n
			}
			return n
		}
	}
	return -1
}

// timeLayouts are the forms of dates and times. Times without a zone are taken as UTC.
var timeLayouts = [...]string{
	time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999",
	"2006/01/02 15:04:05.999999999", "2006-01-02 15:04", "02.01.2006 15:04:05", "Mon Jan _2 15:04:05 2006",
}

// Lower limits for the units of times since 1970: a number above a limit is in that unit.
const (
	millisecondsFrom = 1e11 // 5138 in seconds, 1973 in milliseconds
	microsecondsFrom = 1e14
	nanosecondsFrom  = 1e17
)

// parseTimestamp parses a date with a time, or a number of seconds, milliseconds, microseconds or
// nanoseconds since 1970. It returns seconds since 1970. It first tries the layout of the previous
// date in the column.
func (c *column) parseTimestamp(cell *scan.Cell) (float64, bool) {
	v, ok := cell.Number, cell.Length > 0 && cell.Length == len(cell.Text)
	if !ok {
		if v, ok = c.parseDateTime(cell.Text); ok {
			return v, true
		}
		v, ok = scan.ParseFloat(cell.Text)
	}
	if ok {
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0) || v < 0:
			return 0, false
		case v >= nanosecondsFrom:
			v /= 1e9
		case v >= microsecondsFrom:
			v /= 1e6
		case v >= millisecondsFrom:
			v /= 1e3
		}
		return v, true
	}
	text := string(cell.Text)
	if len(text) > 40 {
		return 0, false
	}
	if i := strings.LastIndexByte(text, ','); i > 0 && len(text)-i == 4 { // as Python's logging writes milliseconds
		text = text[:i] + "." + text[i+1:]
	}
	for i := range timeLayouts {
		k := (c.moment + i) % len(timeLayouts)
		if at, err := time.Parse(timeLayouts[k], text); err == nil {
			c.moment = k
			return float64(at.UnixNano()) / 1e9, true
		}
	}
	return 0, false
}

// parseDateTime parses a date with a time and without a zone, such as 2006-01-02 15:04:05.999.
func (c *column) parseDateTime(cell []byte) (float64, bool) {
	const shortest = len(time.DateTime)
	if len(cell) < shortest || len(cell) > shortest+10 || cell[10] != ' ' && cell[10] != 'T' {
		return 0, false
	}
	midnight, isDate := c.day.Midnight(cell[:10])
	seconds, isTime := scan.ParseTimeOfDay(cell[11:shortest])
	nanoseconds, unit := int64(0), int64(1e9)
	for i, digit := range cell[shortest:] {
		if i == 0 && len(cell) > shortest+1 && (digit == '.' || digit == ',') {
			continue
		}
		unit /= 10
		nanoseconds += unit * int64(digit-'0')
		isTime = isTime && i > 0 && scan.IsDigit(digit)
	}
	return float64(midnight*1e6+seconds*1e9+nanoseconds) / 1e9, isDate && isTime
}
