package system

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/record"
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

func rankFailureOf(log *logline.Log) *rankFailure {
	return logline.FormatState[rankFailure](&log.States, logline.Torchrun)
}

func readRootCause(log *logline.Log, _ []byte) logline.Result {
	FinishRankFailure(log)
	*rankFailureOf(log) = rankFailure{line: log.Lines.Number}
	log.Block = logline.Torchrun
	return logline.Used
}

// readFailureLine reads a line of the failure block, which a line of = or - ends.
func readFailureLine(log *logline.Log, m []byte) logline.Result {
	if scan.HasPrefix(m, "====") || scan.HasPrefix(m, "----") {
		log.Block = logline.NoBlock
		FinishRankFailure(log)
		return logline.Idle
	}
	key, value, ok := bytes.Cut(m, []byte(":"))
	if !ok || len(value) > 1000 {
		return logline.Unknown
	}
	text, failing := strings.TrimSpace(string(value)), rankFailureOf(log)
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

// FinishRankFailure sets the status of the run to failed if torchrun has reported a failed rank.
func FinishRankFailure(log *logline.Log) {
	p := *rankFailureOf(log)
	if p.line == 0 {
		return
	}
	*rankFailureOf(log) = rankFailure{}
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

// The ranks of many programs print a line such as "Rank 3 of 8" or "[rank 3/8] starting". Such a line alone
// is no log: it only adds to the run whose values follow.

var rankPrefixes = []string{"Rank ", "rank ", "[Rank ", "[rank "}

func readRankLine(log *logline.Log, m []byte) logline.Result {
	rank, n, _, ok := ParseRankAndSize(m)
	if !ok {
		return logline.Unknown
	}
	return setWorldSize(log, n, rank)
}

// ParseRankAndSize parses the beginning of a line such as "Rank 3 of 8" or "[rank 3/8] starting" into
// the rank, the number of ranks and the text after them. ok is false if either is missing.
func ParseRankAndSize(m []byte) (rank, n int, rest []byte, ok bool) {
	c := scan.Cursor{Rest: m}
	if !slices.ContainsFunc(rankPrefixes, c.Accept) {
		return 0, 0, nil, false
	}
	rank = c.ReadInteger()
	if !c.Accept(" of ") && !c.Accept("/") {
		return 0, 0, nil, false
	}
	n = c.ReadInteger()
	if c.Failed || rank >= n || m[0] == '[' && !c.Accept("]") {
		return 0, 0, nil, false
	}
	return rank, n, c.Rest, len(c.Rest) == 0 || bytes.IndexByte([]byte(" :,;"), c.Rest[0]) >= 0
}

// setWorldSize sets the workers of the run, and the rank that wrote the line unless it is -1. After the
// values of a run, another number begins a run; otherwise the line may belong to the next run.
func setWorldSize(log *logline.Log, n, rank int) logline.Result {
	if n < 1 || n > record.MaxWorkers {
		return logline.Unknown
	}
	if r := log.Current; r.Closed || r.HasValues() {
		if before := r.Run.Info.Workers; r.Closed || before == 0 || before == n || r.WorkersDerived {
			record.PutInMap(&log.Config, "world_size", any(float64(n)))
			return logline.Idle
		}
		log.BeginRun()
	}
	run := log.CountLine(logline.Command)
	if before := run.Run.Info.Workers; before > 0 && before != n {
		log.In.Report.AddAssumptionOnce("the log states %d and %d workers before its values; the larger number counts", before, n)
	}
	run.Run.Info.Workers = max(run.Run.Info.Workers, n)
	if rank >= 0 {
		run.AddRank(rank)
	}
	return logline.Used
}
