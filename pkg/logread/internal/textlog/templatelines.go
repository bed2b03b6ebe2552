package textlog

import (
	"context"
	"fmt"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// Lines of formats whose rules have templates. The template is the only description of a
// line: readSimilarLines and epochLineParser, which read many similar lines at a high speed,
// match the same templates without finding the end of each line first.

// readLine reads line m, which begins with the prefix of the rule.
func (r *indexedRule) readLine(t *textLog, m []byte) lineResult {
	if r.read != nil {
		return r.read(t, m)
	}
	for _, tmpl := range r.compiled {
		values := t.valuesOf(tmpl)
		if !tmpl.Match(m, values) {
			continue
		}
		if !t.l.Ended && isTorn(m, values) {
			t.in.AddProblem(t.l.Number, "last line is torn: %.80q", m)
			return unused
		}
		return r.use(t, values)
	}
	if r.mayBeOther {
		return unknown
	}
	t.in.AddProblem(t.l.Number, "expected %s, got %.80q", r.expected(), m)
	return unused
}

// expected returns the templates of the rule, for messages.
func (r *indexedRule) expected() string {
	var quoted []string
	for _, text := range r.templates {
		quoted = append(quoted, fmt.Sprintf("%q", text))
	}
	return strings.Join(quoted, " or ")
}

// readSimilarLines reads the following lines in the buffer as long as the first template
// of rule r matches them. TestFastLines compares the results with those of parseLine.
func readSimilarLines(_ context.Context, t *textLog, r *indexedRule) {
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
