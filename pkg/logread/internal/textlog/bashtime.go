package textlog

import "lockstep/pkg/logread/internal/scan"

// The times that bash prints after a command (its keyword time; minutes may
// exceed 60; the decimal point is a comma in some locales):
//
//	real    342m11.864s
//	user    2105m3.120s
//	sys     101m0.005s

// BashTime returns the format of the times that bash prints after a command.
func BashTime() format {
	return format{name: "bash time", lines: []lineRule{
		{prefix: "real", read: (*textLog).readBashRealTime},
		{prefix: "user", read: (*textLog).readBashCPUTime},
		{prefix: "sys", read: (*textLog).readBashCPUTime},
	}}
}

// readBashRealTime reads the line "real": the wall time of the preceding run.
// The lines after it belong to another run.
func (t *textLog) readBashRealTime(m []byte) lineResult {
	seconds, ok := parseBashSeconds(m, "real")
	if !ok {
		return unknown
	}
	t.closeWithWallTime(formatBash, seconds)
	return used
}

// readBashCPUTime reads the lines "user" and "sys". These processor times are
// ignored.
func (t *textLog) readBashCPUTime(m []byte) lineResult {
	for _, name := range []string{"user", "sys"} {
		if _, ok := parseBashSeconds(m, name); ok {
			return idle
		}
	}
	return unknown
}

// parseBashSeconds parses "real\t342m11.864s", or "real 12.34" as printed with
// TIMEFORMAT or time -p, and returns the number of seconds. name is the first
// word of the line.
func parseBashSeconds(m []byte, name string) (float64, bool) {
	c := scan.Cursor{Rest: scan.WithDecimalPoints(m)}
	c.Expect(name)
	if c.Failed || len(c.Rest) == 0 || c.Rest[0] != ' ' && c.Rest[0] != '\t' {
		return 0, false
	}
	v := c.SkipBlanks().ReadFloat()
	if c.Accept("m") {
		s := c.ReadFloat()
		v = v*60 + s
		c.Expect("s")
	}
	return v, c.IsComplete() && v > 0
}
