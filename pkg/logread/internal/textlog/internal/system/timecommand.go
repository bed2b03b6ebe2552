package system

import (
	"bytes"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// The wall time of a command as GNU time and zsh print it after the command.
// Numbers may have a decimal comma.
//
// GNU time, and GNU time with -v:
//
//	Command exited with non-zero status 3
//	11.20user 0.50system 0:13.01elapsed 98%CPU (0avgtext+0avgdata 76116maxresident)k
//	0inputs+8outputs (0major+2592minor)pagefaults 0swaps
//
//	        Command being timed: "python train.py"
//	        User time (seconds): 11.20
//	        Elapsed (wall clock) time (h:mm:ss or m:ss): 0:13.01
//	        Exit status: 0
//
// zsh's keyword time:
//
//	python train.py  11.20s user 0.50s system 98% cpu 13.012 total

// GNUTime returns the format of the times that GNU time prints after a command.
func GNUTime() logline.Format {
	return logline.Format{Name: "GNU time", ReadInBlock: readGNUTimeLine, Rules: []logline.Rule{
		{Prefix: "Command being timed: ", Read: readGNUTimeCommand},
		{Prefix: "Elapsed (wall clock) time ", Read: readGNUTimeElapsed, EndsWithValue: true},
		{Prefix: "Command exited with non-zero status ", Read: readGNUTimeFailure},
		{Prefix: "Command terminated by signal ", Read: readGNUTimeFailure},
	}}
}

// ZshTime returns the format of the times that zsh prints after a command.
func ZshTime() logline.Format {
	return logline.Format{Name: "zsh time", Anywhere: readDefaultTimeLine, EndsWithValue: isZshTime}
}

func readGNUTimeCommand(log *logline.Log, m []byte) logline.Result {
	text := bytes.Trim(m[len("Command being timed: "):], "\"")
	log.CountLine(logline.GNUTime)
	setCommand(log, text)
	log.Block = logline.GNUTime
	return logline.Used
}

func readGNUTimeElapsed(log *logline.Log, m []byte) logline.Result {
	_, text, _ := bytes.Cut(m, []byte("): "))
	seconds, ok := scan.ParseClock(bytes.TrimSpace(text))
	if !ok {
		return log.Refuse("expected a time such as 1:02:03 or 2:03.45, got %.80q", m)
	}
	closeRunWithWallTime(log, logline.GNUTime, seconds)
	log.Block = logline.GNUTime
	return logline.Used
}

func readGNUTimeLine(log *logline.Log, m []byte) logline.Result {
	key, value, _ := bytes.Cut(m, []byte(": "))
	switch string(key) {
	case "Exit status":
		log.Block = logline.NoBlock
		if text := string(bytes.TrimSpace(value)); text != "0" && log.Current.Lines > 0 && len(text) < 10 {
			markFailed(log.Current, "exit status "+text)
			return logline.Used
		}
		return logline.Idle
	case "User time (seconds)", "System time (seconds)", "Percent of CPU this job got", "Swaps", "Signals delivered", "Page size (bytes)",
		"Average shared text size (kbytes)", "Average unshared data size (kbytes)", "Average stack size (kbytes)", "Average total size (kbytes)",
		"Maximum resident set size (kbytes)", "Average resident set size (kbytes)", "Major (requiring I/O) page faults",
		"Minor (reclaiming a frame) page faults", "Voluntary context switches", "Involuntary context switches",
		"File system inputs", "File system outputs", "Socket messages sent", "Socket messages received":
		return logline.Idle
	}
	if !scan.HasPrefix(m, "Elapsed (wall") && !scan.HasPrefix(m, "Command being timed") {
		log.Block = logline.NoBlock
	}
	return logline.Unknown
}

func readGNUTimeFailure(log *logline.Log, m []byte) logline.Result {
	markFailed(log.CountLine(logline.GNUTime), string(m[len("Command "):min(len(m), 100)]))
	return logline.Used
}

// markFailed sets the status of the run to failed, unless it is known already.
func markFailed(r *logline.Run, why string) {
	if r.Run.Info.Status == "" {
		r.Run.Info.Status, r.Run.Info.Error = runs.StatusFailed, why
	}
}

func closeRunWithWallTime(log *logline.Log, name logline.FormatID, seconds float64) {
	run := log.CountLine(name)
	run.Run.WallSeconds = seconds
	run.Closed = true
	log.In.Report.Records++
}

// readDefaultTimeLine reads a line in the default format of GNU time or of zsh's time, neither of
// which begins with a fixed text.
func readDefaultTimeLine(log *logline.Log, m []byte) logline.Result {
	if bytes.HasSuffix(m, []byte("swaps")) && bytes.Contains(m, []byte("pagefaults ")) && bytes.Contains(m, []byte("inputs+")) {
		return logline.Idle
	}
	if len(m) > 1<<14 || !bytes.Contains(m, []byte("user ")) { // nearly every line
		return logline.Unknown
	}
	if command, rest, ok := cutZshTime(m); ok {
		return readZshTime(log, command, rest)
	}
	c := scan.Cursor{Rest: scan.WithDecimalPoints(m)}
	if c.ReadFloat(); c.Failed || !c.Accept("user ") {
		return logline.Unknown
	}
	if c.ReadFloat(); c.Failed || !c.Accept("system ") {
		return logline.Unknown
	}
	text, rest, _ := bytes.Cut(c.Rest, []byte("elapsed "))
	seconds, ok := scan.ParseClock(text)
	if !ok || !bytes.HasSuffix(rest, []byte("maxresident)k")) {
		return log.Refuse("expected \"Uuser Ssystem [H:]M:Selapsed P%%CPU (…maxresident)k\", got %.80q", m)
	}
	closeRunWithWallTime(log, logline.GNUTime, seconds)
	return logline.Used
}

// cutZshTime cuts a line of zsh's time into the command and the rest from the system time on. ok is
// false for another line.
func cutZshTime(m []byte) (command, rest []byte, ok bool) {
	i := bytes.LastIndex(m, []byte("s user "))
	if i < 0 {
		return nil, nil, false
	}
	n := i
	for n > 0 && (scan.IsDigit(m[n-1]) || m[n-1] == '.' || m[n-1] == ',') {
		n--
	}
	c := scan.Cursor{Rest: scan.WithDecimalPoints(m[i+len("s user "):])}
	c.ReadFloat()
	rest = c.Rest
	return bytes.TrimSpace(m[:n]), rest, n < i && n > 1 && m[n-1] == ' ' && m[n-2] == ' ' && !c.Failed && scan.HasPrefix(rest, "s")
}

func isZshTime(m []byte) bool {
	_, _, ok := cutZshTime(m)
	return ok
}

// filterCommands returns the names of commands that only process the output of another command. In
// a pipeline, zsh prints the time of each command.
func filterCommands() []string {
	return []string{"tee", "cat", "grep", "tail", "head", "ts", "sed", "awk", "less", "gzip", "zstd", "sort"}
}

// readZshTime reads the rest of a line of zsh's time, such as "s system 98% cpu 13.012 total".
func readZshTime(log *logline.Log, command, rest []byte) logline.Result {
	c := scan.Cursor{Rest: rest}
	c.Expect("s system ").ReadFloat()
	c.Expect("% cpu ")
	text, end, found := bytes.Cut(c.Rest, []byte(" "))
	seconds, ok := scan.ParseClock(text)
	if c.Failed || !found || !ok || string(end) != "total" {
		return log.Refuse("zsh's time: expected \"COMMAND  Us user Ss system P%% cpu T total\", got %.80q after %.80q", rest, command)
	}
	if first, _, _ := bytes.Cut(command, []byte(" ")); log.Current.Closed && slices.Contains(filterCommands(), string(first)) {
		return logline.Idle
	}
	closeRunWithWallTime(log, logline.ZshTime, seconds)
	setCommand(log, command)
	return logline.Used
}

// setCommand sets the command of the current run and what it shows about the run, unless an earlier
// line contained a command.
func setCommand(log *logline.Log, text []byte) {
	if words := strings.Fields(string(text[:min(len(text), 1<<14)])); len(words) > 0 && len(log.Current.Run.Info.Command) == 0 {
		applyCommand(log, words, text)
	}
}

// The times that bash prints after a command (its keyword time; minutes may exceed 60; some locales
// have a decimal comma):
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

// readBashTime reads a line with a time; only the real one is used.
func readBashTime(log *logline.Log, m []byte) logline.Result {
	end := max(bytes.IndexAny(m, " \t"), 0)
	seconds, ok := scan.ParseClock(bytes.TrimSpace(m[end:]))
	switch name := string(m[:end]); {
	case !ok || name != "real" && name != "user" && name != "sys": // other text
		return logline.Unknown
	case name != "real":
		return logline.Idle
	}
	closeRunWithWallTime(log, logline.BashTime, seconds)
	return logline.Used
}
