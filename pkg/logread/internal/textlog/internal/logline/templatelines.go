package logline

import (
	"context"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
)

// Lines of formats whose rules have templates. The template is the only description of a
// line: ReadSimilarLines and epochLineParser, which read many similar lines at a high speed,
// match the same templates without finding the end of each line first.

// ReadSimilarLines reads the following lines in the buffer as long as the first template
// of rule r matches them. TestFastLines compares the results with those of parseLine.
func ReadSimilarLines(_ context.Context, log *Log, r *Rule) {
	if log.Block != NoBlock {
		return
	}
	l, tmpl := log.Lines, r.compiled[0]
	values := log.ValuesOf(tmpl)
	for l.Start < l.End {
		b := l.Buf[l.Start:l.End]
		m := b
		if log.Rank, log.Stamp = -1, nil; b[0] <= '9' {
			m = log.stripUsualPrefix(b)
		}
		n := tmpl.MatchFirst(m, values)
		if n == 0 {
			return
		}
		l.Number++
		l.Start += len(b) - len(m) + n
		log.CountResult(r.Use(log, values))
	}
}

// CountResult counts a line whose values a rule has read at a high speed.
func (log *Log) CountResult(v Result) {
	if v == Used {
		log.In.Report.LinesUsed++
		if len(log.Stamp) > 0 {
			log.UpdateTimes()
		}
	}
}

// stripUsualPrefix is StripPrefix for text that begins with the line and continues with
// others. It strips only the usual label, time stamp and level: "3: 2018-10-07 20:36:09,348
// INFO ". It returns nil if the stamp has another level.
func (log *Log) stripUsualPrefix(text []byte) []byte {
	k := 0
	for k < len(text) && k < 8 && text[k] == ' ' {
		k++
	}
	rank, n := scan.ParseShortInteger(text[k:])
	if n > 0 && rank <= record.MaxWorkers && scan.HasPrefix(text[k+n:], ": ") {
		log.Rank = rank
		k += n + len(": ")
	}
	if len(text)-k <= StampBytes || !isFullStamp(text[k:k+StampBytes]) {
		return text[k:]
	}
	log.Stamp = text[k : k+StampBytes]
	m := text[k+StampBytes:]
	if !scan.HasPrefix(m, " INFO ") {
		return nil
	}
	return m[len(" INFO "):]
}

// ValuesOf returns space for the values of a template's fields. It is used again for the
// next line.
func (log *Log) ValuesOf(tmpl *template.Template) []template.Value {
	n := len(tmpl.Fields())
	if len(log.values) < n {
		log.values = make([]template.Value, n)
	}
	return log.values[:n]
}

// IsTorn reports whether the last line of a file, which has no line end, ends with a value
// that may be incomplete.
func IsTorn(m []byte, values []template.Value) bool {
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
