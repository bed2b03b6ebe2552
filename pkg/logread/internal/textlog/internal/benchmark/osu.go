package benchmark

import (
	"bytes"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
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
	columns     int  // number of columns of the heading; 2 without one
}

// OSU returns the format of the OSU micro-benchmarks.
func OSU() logline.Format {
	return logline.Format{Name: "OSU micro-benchmarks", ReadInBlock: readOSULine, NotInBlock: []logline.FormatID{logline.NCCLTests}, BlockIsTable: true, Rules: []logline.Rule{
		{Prefix: "# OSU ", Read: readOSUTitle},
	}}
}

func osuOf(log *logline.Log) *osuState { return logline.State[osuState](&log.States, logline.OSU) }

// readOSUTitle reads the line with the name of the test.
func readOSUTitle(log *logline.Log, m []byte) logline.Result {
	words := bytes.Fields(m)
	log.Block = logline.OSU
	osuOf(log).columns = 2
	osuOf(log).isAllReduce = len(words) > 5 && string(words[3]) == "Allreduce" && string(words[4]) == "Latency" && string(words[5]) == "Test"
	if !osuOf(log).isAllReduce {
		log.In.AddProblem(log.Lines.Number, "%.100q: only the latency of osu_allreduce is used", m)
		return logline.Unused
	}
	beginBenchmark(log)
	log.CountLine(logline.OSU)
	return logline.Used
}

// readOSULine reads a heading or a row of the table. Another line ends it.
func readOSULine(log *logline.Log, m []byte) logline.Result {
	if m[0] == '#' && !scan.HasPrefix(m, "# OSU ") {
		if scan.HasPrefix(m, "# Size") && !bytes.Contains(m, []byte("Latency(us)")) && !bytes.Contains(m, []byte("Latency (us)")) {
			osuOf(log).isAllReduce = false // another quantity
		}
		if scan.HasPrefix(m, "# Size") {
			osuOf(log).columns = 1 + bytes.Count(m, []byte("(us)")) + bytes.Count(m, []byte("Iterations"))
		}
		return logline.Idle
	}
	fields := bytes.Fields(m)
	size, okSize := scan.ParseFloat(fields[0])
	if !scan.IsDigit(m[0]) || !okSize || size != float64(int64(size)) || len(fields) != osuOf(log).columns { // such as a line of another program
		if !okSize {
			log.Block = logline.NoBlock
		}
		return logline.Unknown
	}
	micro, ok := scan.ParseFloat(fields[1])
	switch {
	case !ok:
		return logline.Unknown
	case !osuOf(log).isAllReduce:
		log.In.Report.AddIgnored(log.Lines.Number, otherCollective)
		return logline.Pending
	case !(size > 0 && micro > 0):
		log.In.Report.AddIgnored(log.Lines.Number, emptyCollective)
		return logline.Pending
	}
	r := &log.CountLine(logline.OSU).Run
	if len(r.AllReduces) >= maxCollectiveRows {
		log.In.AddProblem(log.Lines.Number, "the table has more than %d rows; this one is not used", maxCollectiveRows)
		return logline.Unused
	}
	r.AllReduces = append(r.AllReduces, runs.AllReduce{Bytes: size, Seconds: micro / 1e6, Line: log.Lines.Number})
	log.In.Report.Records++
	return logline.Used
}
