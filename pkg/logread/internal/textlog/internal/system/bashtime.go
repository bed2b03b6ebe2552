package system

import (
	"bytes"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
)

// The times that bash prints after a command (its keyword time; minutes may
// exceed 60; the decimal point is a comma in some locales):
//
//	real    342m11.864s
//	user    2105m3.120s
//	sys     101m0.005s

// BashTime returns the format of the times that bash prints after a command.
func BashTime() logline.Format {
	return logline.Format{Name: "bash time", Rules: []logline.Rule{
		{Prefix: "real", Read: readBashRealTime},
		{Prefix: "user", Read: readBashCPUTime},
		{Prefix: "sys", Read: readBashCPUTime},
	}}
}

// readBashRealTime reads the line "real": the wall time of the preceding run.
// The lines after it belong to another run.
func readBashRealTime(log *logline.Log, m []byte) logline.Result {
	seconds, ok := parseBashSeconds(m, "real")
	if !ok {
		return logline.Unknown
	}
	closeWithWallTime(log, logline.BashTime, seconds)
	return logline.Used
}

// readBashCPUTime reads the lines "user" and "sys". These processor times are
// ignored.
func readBashCPUTime(log *logline.Log, m []byte) logline.Result {
	for _, name := range []string{"user", "sys"} {
		if _, ok := parseBashSeconds(m, name); ok {
			return logline.Idle
		}
	}
	return logline.Unknown
}

// parseBashSeconds parses "real\t342m11.864s", or "real 12.34" as printed with
// TIMEFORMAT or time -p, and returns the number of seconds. name is the first
// word of the line.
func parseBashSeconds(m []byte, name string) (float64, bool) {
	text, ok := bytes.CutPrefix(m, []byte(name))
	if !ok || len(text) == 0 || text[0] != ' ' && text[0] != '\t' {
		return 0, false
	}
	return scan.ParseClock(bytes.TrimSpace(text))
}
