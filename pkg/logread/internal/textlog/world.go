package textlog

import (
	"bytes"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
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
func worldRules() []lineRule {
	var rules []lineRule
	for _, name := range []string{
		"World size", "world size", "World Size", "world_size", "WORLD_SIZE", "Number of replicas", "Number of replicas in sync", "Number of devices",
		"Number of processes", "Number of ranks",
	} {
		rules = append(rules, lineRule{prefix: name, read: func(t *textLog, m []byte) lineResult { return t.readWorldSize(m[len(name):]) }, endsWithValue: true})
	}
	for _, name := range []string{"Rank ", "rank ", "[Rank ", "[rank "} {
		rules = append(rules, lineRule{prefix: name, read: func(t *textLog, m []byte) lineResult { return t.readRankOf(m[len(name):], name[0] == '[') }})
	}
	return rules
}

// readWorldSize reads the rest of a line after the words for the number of workers, such as ": 8" or " 8".
// Text after the number must be separated by a comma or a semicolon.
func (t *textLog) readWorldSize(rest []byte) lineResult {
	c := scan.Cursor{Rest: rest}
	c.SkipBlanks()
	if separated := c.Accept(":") || c.Accept("=") || c.Accept("is "); !separated && len(c.Rest) == len(rest) {
		return unknown
	}
	n := c.SkipBlanks().ReadInteger()
	if c.Failed || len(c.Rest) > 0 && bytes.IndexByte([]byte(",;"), c.Rest[0]) < 0 {
		return unknown
	}
	return t.setWorld(n, -1)
}

// readRankOf reads the rest of a line after the word rank: "3 of 8", "3/8". In brackets, "]" must
// follow.
func (t *textLog) readRankOf(rest []byte, bracket bool) lineResult {
	c := scan.Cursor{Rest: rest}
	rank := c.ReadInteger()
	if !c.Accept(" of ") && !c.Accept("/") {
		return unknown
	}
	n := c.ReadInteger()
	if c.Failed || rank >= n || bracket && !c.Accept("]") {
		return unknown
	}
	if len(c.Rest) > 0 && bytes.IndexByte([]byte(" :,;"), c.Rest[0]) < 0 {
		return unknown
	}
	return t.setWorld(n, rank)
}

// setWorld sets the number of workers of the run, and the rank that wrote the line unless it is
// -1. After the values of a run, the line may belong to the next run.
func (t *textLog) setWorld(n, rank int) lineResult {
	if n < 1 || n > record.MaxWorkers {
		return unknown
	}
	if t.cur.closed || t.cur.hasValues() {
		if t.config == nil {
			t.config = map[string]any{}
		}
		t.config["world_size"] = float64(n)
		return idle
	}
	run := t.countLine(formatCommand)
	if before := run.run.Info.Workers; before > 0 && before != n {
		t.in.Report.AddAssumptionOnce("the log states %d and %d workers before its values; the larger number counts", before, n)
	}
	run.run.Info.Workers = max(run.run.Info.Workers, n)
	if rank >= 0 {
		run.addRank(rank)
	}
	return used
}
