package system

import (
	"bytes"
	"fmt"
	"strings"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// torchrun prints this block of lines when a rank fails:
//
//	Root Cause (first observed failure):
//	[0]:
//	  time      : 2022-03-07_12:00:00
//	  host      : node01
//	  rank      : 3 (local_rank: 3)
//	  exitcode  : 1 (pid: 12345)
//	  error_file: <N/A>
//	  traceback : To enable traceback see: …

// rankFailure contains the fields of torchrun's block of lines about a failed
// rank.
type rankFailure struct {
	line                  int // number of the block's first line; 0 if there was no block
	rank, host, code, why string
}

// Torchrun returns the format of torchrun's report of a failed rank.
func Torchrun() logline.Format {
	return logline.Format{Name: "torchrun failure", ReadInBlock: readFailureLine, Rules: []logline.Rule{
		{Prefix: "Root Cause", Read: readRootCause},
	}}
}

func failureOf(log *logline.Log) *rankFailure {
	return logline.State[rankFailure](&log.States, logline.Torchrun)
}

// readRootCause reads the line "Root Cause", which begins the block about the
// first rank that failed.
func readRootCause(log *logline.Log, _ []byte) logline.Result {
	FinishFailure(log)
	*failureOf(log) = rankFailure{line: log.Lines.Number}
	log.Block = logline.Torchrun
	return logline.Used
}

// readFailureLine reads a line of the failure block. A line of = or - ends the
// block.
func readFailureLine(log *logline.Log, m []byte) logline.Result {
	if scan.HasPrefix(m, "====") || scan.HasPrefix(m, "----") {
		log.Block = logline.NoBlock
		FinishFailure(log)
		return logline.Idle
	}
	key, value, ok := bytes.Cut(m, []byte(":"))
	if !ok || len(value) > 1000 {
		return logline.Unknown
	}
	text, failing := strings.TrimSpace(string(value)), failureOf(log)
	switch string(bytes.TrimSpace(key)) {
	case "rank":
		failing.rank, _, _ = strings.Cut(text, " ")
	case "host":
		failing.host = text
	case "exitcode":
		failing.code, _, _ = strings.Cut(text, " (pid")
	case "traceback", "msg", "message":
		if !strings.HasPrefix(text, "To enable traceback") {
			failing.why = text
		}
	case "time", "error_file", "[0]":
	default:
		return logline.Unknown
	}
	return logline.Used
}

// FinishFailure sets the status of the run to failed after torchrun's report of
// a failed rank has been read. It does nothing if there was no such report.
func FinishFailure(log *logline.Log) {
	p := *failureOf(log)
	if p.line == 0 {
		return
	}
	*failureOf(log) = rankFailure{}
	run := log.CountLine(logline.Torchrun)
	text := "torchrun: a rank failed"
	if p.rank != "" {
		text = "torchrun: rank " + p.rank + " failed"
	}
	if p.host != "" {
		text += " on " + p.host
	}
	if p.code != "" {
		text += " with exit code " + p.code
	}
	if p.why != "" {
		text += ": " + p.why
	}
	run.Run.Info.Status, run.Run.Info.Error = runs.StatusFailed, fmt.Sprintf("%s (line %d)", text, p.line)
	log.In.Report.Records++
}
