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
		{Prefix: "real", Read: readBashTime},
		{Prefix: "user", Read: readBashTime},
		{Prefix: "sys", Read: readBashTime},
	}}
}

// readBashTime reads a line with a time, of which only the real one is used.
func readBashTime(log *logline.Log, m []byte) logline.Result {
	end := max(bytes.IndexAny(m, " \t"), 0)
	seconds, ok := scan.ParseClock(bytes.TrimSpace(m[end:]))
	switch name := string(m[:end]); {
	case !ok || name != "real" && name != "user" && name != "sys": // other text
		return logline.Unknown
	case name != "real":
		return logline.Idle
	}
	closeWithWallTime(log, logline.BashTime, seconds)
	return logline.Used
}
