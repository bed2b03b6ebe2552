package system

import (
	"bytes"
	"slices"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
)

// Many programs print the number of their workers in words that belong to no framework:
//
//	World size: 8
//	WORLD_SIZE=8
//	world_size 8
//	Number of replicas in sync: 8
//	Rank 3 of 8
//	[rank 3/8] starting
//
// Such a line alone is no log: it only adds to the run whose values follow.

// worldRules returns the rules of lines that state the number of workers.
func worldRules() []logline.Rule {
	var rules []logline.Rule
	for _, name := range []string{
		"World size", "world size", "World Size", "world_size", "WORLD_SIZE", "Number of replicas", "Number of replicas in sync", "Number of devices",
		"Number of processes", "Number of ranks",
	} {
		rules = append(rules, logline.Rule{Prefix: name, Read: func(log *logline.Log, m []byte) logline.Result { return readWorldSize(log, m[len(name):]) }, EndsWithValue: true})
	}
	for _, prefix := range rankPrefixes {
		rules = append(rules, logline.Rule{Prefix: prefix, Read: readRankOf})
	}
	return rules
}

// readWorldSize reads the rest of a line after the words for the number of workers, such as ": 8" or " 8".
// Text after the number must be separated by a comma or a semicolon.
func readWorldSize(log *logline.Log, rest []byte) logline.Result {
	c := scan.Cursor{Rest: rest}
	c.SkipBlanks()
	if separated := c.Accept(":") || c.Accept("=") || c.Accept("is "); !separated && len(c.Rest) == len(rest) {
		return logline.Unknown
	}
	n := c.SkipBlanks().ReadInteger()
	if c.Failed || len(c.Rest) > 0 && bytes.IndexByte([]byte(",;"), c.Rest[0]) < 0 {
		return logline.Unknown
	}
	return setWorld(log, n, -1)
}

// rankPrefixes contains the beginnings of lines that state a rank and the number of ranks.
var rankPrefixes = []string{"Rank ", "rank ", "[Rank ", "[rank "}

// readRankOf reads a line such as "Rank 3 of 8".
func readRankOf(log *logline.Log, m []byte) logline.Result {
	rank, n, _, ok := ParseRankOf(m)
	if !ok {
		return logline.Unknown
	}
	return setWorld(log, n, rank)
}

// ParseRankOf parses the beginning of a line such as "Rank 3 of 8" or "[rank 3/8] starting". It
// returns the rank, the number of ranks and the text after them. ok is false if the line does not
// state both.
func ParseRankOf(m []byte) (rank, n int, rest []byte, ok bool) {
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

// setWorld sets the number of workers of the run, and the rank that wrote the line unless it is
// -1. After the values of a run, the line may belong to the next run.
func setWorld(log *logline.Log, n, rank int) logline.Result {
	if n < 1 || n > record.MaxWorkers {
		return logline.Unknown
	}
	if log.Current.Closed || log.Current.HasValues() {
		record.Put(&log.Config, "world_size", any(float64(n)))
		return logline.Idle
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
