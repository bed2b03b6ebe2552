package textlog

import (
	"bytes"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// The OSU micro-benchmarks print a table per test. Only osu_allreduce is used,
// whose first column after the size in bytes is the mean over the ranks. The
// number of ranks is not in the output:
//
//	# OSU MPI-CUDA Allreduce Latency Test v7.4
//	# Datatype: MPI_CHAR.
//	# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
//	1048576               230.90            228.10            233.70         100

// osuState is the table of a log that is being read.
type osuState struct {
	isAllReduce bool // the table has the times of osu_allreduce
}

// OSU returns the format of the OSU micro-benchmarks.
func OSU() format {
	return format{name: "OSU micro-benchmarks", readInBlock: (*textLog).readOSULine, blockIsTable: true, lines: []lineRule{
		{prefix: "# OSU ", read: (*textLog).readOSUTitle},
	}}
}

// osuOf returns the table of an OSU micro-benchmark that is being read.
func osuOf(t *textLog) *osuState { return stateOf[osuState](&t.states, formatOSU) }

// readOSUTitle reads the line with the name of the test.
func (t *textLog) readOSUTitle(m []byte) lineResult {
	words := bytes.Fields(m)
	t.block = formatOSU
	osuOf(t).isAllReduce = len(words) > 5 && string(words[3]) == "Allreduce" && string(words[4]) == "Latency" && string(words[5]) == "Test"
	if !osuOf(t).isAllReduce {
		t.in.AddProblem(t.l.Number, "%.100q: only the latency of osu_allreduce is used", m)
		return unused
	}
	t.beginBenchmark()
	t.countLine(formatOSU)
	return used
}

// readOSULine reads a heading or a row of the table. Another line ends it.
func (t *textLog) readOSULine(m []byte) lineResult {
	if m[0] == '#' && !scan.HasPrefix(m, "# OSU ") {
		if scan.HasPrefix(m, "# Size") && !bytes.Contains(m, []byte("Latency(us)")) && !bytes.Contains(m, []byte("Latency (us)")) {
			osuOf(t).isAllReduce = false // another quantity
		}
		return idle
	}
	fields := bytes.Fields(m)
	size, okSize := scan.ParseFloat(fields[0])
	if !scan.IsDigit(m[0]) || !okSize || size != float64(int64(size)) || len(fields) == 1 {
		if !okSize {
			t.block = noBlock
		}
		return unknown
	}
	micro, ok := scan.ParseFloat(fields[1])
	switch {
	case !ok:
		return unknown
	case !osuOf(t).isAllReduce:
		t.in.Report.AddIgnored(t.l.Number, otherCollective)
		return pending
	case !(size > 0 && micro > 0):
		t.in.Report.AddIgnored(t.l.Number, emptyCollective)
		return pending
	}
	r := &t.countLine(formatOSU).run
	if len(r.AllReduces) >= maxCollectiveRows {
		t.in.AddProblem(t.l.Number, "the table has more than %d rows; this one is not used", maxCollectiveRows)
		return unused
	}
	r.AllReduces = append(r.AllReduces, runs.AllReduce{Bytes: size, Seconds: micro / 1e6, Line: t.l.Number})
	t.in.Report.Records++
	return used
}
