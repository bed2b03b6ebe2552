package textlog

import (
	"context"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
)

// Lines of formats whose rules have templates. The template is the only description of a
// line: readSimilarLines and epochLineParser, which read many similar lines at a high speed,
// match the same templates without finding the end of each line first.

// readSimilarLines reads the following lines in the buffer as long as the first template
// of rule r matches them. TestFastLines compares the results with those of parseLine.
func readSimilarLines(_ context.Context, t *textLog, r *lineRule) {
	if t.block != noBlock {
		return
	}
	l, tmpl := t.l, r.compiled[0]
	values := t.valuesOf(tmpl)
	for l.Start < l.End {
		b := l.Buf[l.Start:l.End]
		m := b
		if t.rank, t.stamp = -1, nil; b[0] <= '9' {
			m = t.stripUsualPrefix(b)
		}
		n := tmpl.MatchFirst(m, values)
		if n == 0 {
			return
		}
		l.Number++
		l.Start += len(b) - len(m) + n
		t.countResult(r.use(t, values))
	}
}

// countResult counts a line whose values a rule has read at a high speed.
func (t *textLog) countResult(v lineResult) {
	if v == used {
		t.in.Report.LinesUsed++
		if len(t.stamp) > 0 {
			t.updateTimes()
		}
	}
}

// stripUsualPrefix is stripPrefix for text that begins with the line and continues with
// others. It strips only the usual label, time stamp and level: "3: 2018-10-07 20:36:09,348
// INFO ". It returns nil if the stamp has another level.
func (t *textLog) stripUsualPrefix(text []byte) []byte {
	k := 0
	for k < len(text) && k < 8 && text[k] == ' ' {
		k++
	}
	rank, n := scan.ParseShortInteger(text[k:])
	if n > 0 && rank <= record.MaxWorkers && scan.HasPrefix(text[k+n:], ": ") {
		t.rank = rank
		k += n + len(": ")
	}
	if len(text)-k <= stampBytes || !isFullStamp(text[k:k+stampBytes]) {
		return text[k:]
	}
	t.stamp = text[k : k+stampBytes]
	m := text[k+stampBytes:]
	if !scan.HasPrefix(m, " INFO ") {
		return nil
	}
	return m[len(" INFO "):]
}

// valuesOf returns space for the values of a template's fields. It is used again for the
// next line.
func (t *textLog) valuesOf(tmpl *template.Template) []template.Value {
	n := len(tmpl.Fields())
	if len(t.values) < n {
		t.values = make([]template.Value, n)
	}
	return t.values[:n]
}

// isTorn reports whether the last line of a file, which has no line end, ends with a value
// that may be incomplete.
func isTorn(m []byte, values []template.Value) bool {
	end := m[len(m)-1]
	if !scan.IsDigit(end) && !scan.IsLetter(end) && end != '.' {
		return false
	}
	for _, v := range values {
		if v.To == len(m) {
			return true
		}
	}
	return false
}
