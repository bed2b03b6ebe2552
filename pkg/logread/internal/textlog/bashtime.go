package textlog

import "lockstep/pkg/logread/internal/scan"

// The times that bash prints after a command (its keyword time; minutes may
// exceed 60):
//
//	real    342m11.864s
//	user    2105m3.120s
//	sys     101m0.005s

// bashReal reads the wall time of the run above. What follows belongs to
// another run.
func (t *textLog) bashReal(m []byte) verdict {
	seconds, ok := bashSeconds(m, "real")
	if !ok {
		return unknown
	}
	run := t.form(formBash)
	run.run.WallSeconds = seconds
	run.closed = true
	t.in.Report.Records++
	return used
}

// bashOther recognizes the processor times, which are not used.
func (t *textLog) bashOther(m []byte) verdict {
	for _, name := range []string{"user", "sys"} {
		if _, ok := bashSeconds(m, name); ok {
			return idle
		}
	}
	return unknown
}

// bashSeconds parses "real\t342m11.864s", or "real 12.34" of TIMEFORMAT and
// time -p.
func bashSeconds(m []byte, name string) (float64, bool) {
	c := scan.Cursor{Rest: m}
	c.Expect(name)
	if c.Failed || len(c.Rest) == 0 || c.Rest[0] != ' ' && c.Rest[0] != '\t' {
		return 0, false
	}
	v := c.SkipBlanks().Float()
	if c.Accept("m") {
		s := c.Float()
		v = v*60 + s
		c.Expect("s")
	}
	return v, c.Complete() && v > 0
}
