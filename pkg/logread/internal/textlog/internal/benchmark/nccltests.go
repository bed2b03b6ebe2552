package benchmark

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// NVIDIA's nccl-tests, and AMD's rccl-tests, print a table per collective. Older
// versions do not print its name, have no column root, or name the last column
// error:
//
//	# Collective test starting: all_reduce_perf
//	# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 …
//	#
//	# Using devices
//	#  Rank  0 Group  0 Pid   1234 on     node01 device  0 [0x07] NVIDIA A100-SXM4-40GB
//	#
//	#                                                              out-of-place                       in-place
//	#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
//	#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
//	     1048576        262144     float     sum      -1    52.40   20.01   35.02      0    51.90   20.20   35.36      0
//	# Avg bus bandwidth    : 35.19
//
// Only the all-reduce in place is used, which is how training reduces gradients.

// Reasons for ignoring rows in the output of collective benchmarks.
const (
	otherCollective = "benchmark of another collective than the all-reduce"
	emptyCollective = "benchmark of the all-reduce: of 0 bytes"
)

const maxCollectiveRows = 1 << 14

type ncclState struct {
	test    string   // name of the test, such as all_reduce_perf; empty if unknown
	columns []string // names of the columns; nil before the heading
	ranks   int      // number of lines of ranks in the group of rank 0
	highest int      // highest rank in these lines
	groups  bool     // there are other groups, so the ranks in this one need not be consecutive
	rows    []ncclRow
}

// NCCLTests returns the format of nccl-tests.
func NCCLTests() logline.Format {
	return logline.Format{Name: "nccl-tests", ReadInBlock: readNCCLLine, NotInBlock: []logline.FormatID{logline.OSU}, BlockIsTable: true, Finish: finishNCCL, Rules: []logline.Rule{
		{Prefix: "# Collective test starting: ", Read: readNCCLTest},
		{Prefix: "# nThread ", Read: readNCCLSettings},
	}}
}

func ncclStateOf(r *logline.Run) *ncclState {
	return logline.FormatState[ncclState](&r.States, logline.NCCLTests)
}

type ncclRow struct {
	runs.AllReduce
	reduces bool    // the operation reduces, and all ranks get the result
	ratio   float64 // bus bandwidth divided by the bandwidth of the algorithm; NaN if unknown
}

// readNCCLTest reads "# Collective test starting:", which new versions print before "# nThread".
func readNCCLTest(log *logline.Log, m []byte) logline.Result {
	beginBenchmarkRun(log)
	log.Block = logline.NoBlock // which may be the table of another benchmark
	ncclStateOf(log.CountLine(logline.NCCLTests)).test = string(bytes.TrimSpace(m[len("# Collective test starting: "):min(len(m), 100)]))
	return logline.Used
}

// beginBenchmarkRun begins a run if the current one already has values.
func beginBenchmarkRun(log *logline.Log) {
	r := log.Current
	if r.TableBegun || len(r.Run.AllReduces) > 0 || !r.Epochs.IsEmpty() || len(r.Curves.All) > 0 || len(r.Trials) > 0 {
		log.BeginRun()
	}
}

func readNCCLSettings(log *logline.Log, m []byte) logline.Result {
	if !bytes.Contains(m, []byte(" nGpus ")) || !bytes.Contains(m, []byte(" minBytes ")) {
		return logline.Unknown
	}
	beginBenchmarkRun(log)
	log.CountLine(logline.NCCLTests).TableBegun = true
	log.Block = logline.NCCLTests
	return logline.Used
}

func readNCCLLine(log *logline.Log, m []byte) logline.Result {
	s := ncclStateOf(log.Current)
	switch {
	case scan.IsDigit(m[0]):
		return readNCCLRow(log, m)
	case m[0] != '#' || scan.HasPrefix(m, "# nThread ") || scan.HasPrefix(m, "# Collective test starting: "):
		return logline.Unknown
	case scan.HasPrefix(m, "# Avg bus bandwidth"):
		log.Block = logline.NoBlock
		log.Current.Closed = true
		return logline.Idle
	}
	fields := bytes.Fields(m[1:])
	switch {
	case len(fields) > 4 && string(fields[0]) == "Rank":
		c := scan.Cursor{Rest: fields[3]}
		if group := c.ReadInteger(); string(fields[2]) == "Group" && c.IsComplete() && group > 0 {
			s.groups = true
			return logline.Idle
		}
		s.ranks++
		c = scan.Cursor{Rest: fields[1]}
		if rank := c.ReadInteger(); c.IsComplete() && rank < record.MaxWorkers {
			s.highest = max(s.highest, rank)
		}
		return logline.Idle
	case len(fields) > 6 && string(fields[0]) == "size" && string(fields[1]) == "count":
		s.columns = nil
		for _, f := range fields {
			s.columns = append(s.columns, string(f))
		}
	}
	return logline.Idle
}

// readNCCLRow reads a row of the table. Whether the row is used is decided at the end of the run.
func readNCCLRow(log *logline.Log, m []byte) logline.Result {
	s := ncclStateOf(log.Current)
	fields := bytes.Fields(m)
	if len(fields) < 4 || !isNCCLType(fields[2]) {
		return logline.Unknown
	}
	at := -1
	for i, name := range s.columns {
		if name == "time" { // the second time is in place
			at = i
		}
	}
	if at < 0 || len(fields) < len(s.columns) || at+2 >= len(s.columns) {
		return log.Refuse("expected a row with the columns %q of nccl-tests, got %.120q", s.columns, m)
	}
	var v [4]float64
	for i, k := range []int{0, at, at + 1, at + 2} { // size, time, algbw, busbw
		x, ok := scan.ParseFloat(fields[k])
		if !ok || !(x >= 0) {
			return log.Refuse("column %s: expected a number, got %.40q", s.columns[k], fields[k])
		}
		v[i] = x
	}
	if len(s.rows) >= maxCollectiveRows {
		return log.Refuse("the table has more than %d rows; this one is not used", maxCollectiveRows)
	}
	row := ncclRow{AllReduce: runs.AllReduce{Bytes: v[0], Seconds: v[1] / 1e6, Line: log.Lines.Number}, ratio: math.NaN()}
	root := slices.Index(s.columns, "root")
	row.reduces = string(fields[3]) != "none" && (root < 0 || string(fields[root]) == "-1")
	if v[2] > 0 {
		row.ratio = v[3] / v[2]
	}
	s.rows = append(s.rows, row)
	log.CountLine(logline.NCCLTests)
	return logline.Pending
}

func isNCCLType(text []byte) bool {
	switch string(text) {
	case "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2", "char":
		return true
	}
	return false
}

// finishNCCL adds the times to the run if the table is that of an all-reduce.
func finishNCCL(r *logline.Run, report *record.Report) {
	s := ncclStateOf(r)
	if n := s.highest + 1; s.ranks > 0 && s.ranks < n && !s.groups {
		report.AddProblem(r.Line, "the list of devices has only %d of %d ranks: lines are missing", s.ranks, n)
		s.ranks = n
	}
	if s.ranks > 0 && r.Run.Info.Workers == 0 && r.TableBegun {
		r.Run.Info.Workers = s.ranks
	}
	if len(s.rows) == 0 {
		return
	}
	isAllReduce := s.test == "all_reduce_perf"
	if s.test == "" && s.isAllReduceByBandwidth() {
		isAllReduce = true
		report.AddAssumption("the table of nccl-tests is that of an all-reduce: its operation reduces for all ranks, and its bus bandwidth is 2(N−1)/N of its bandwidth, N = %d", s.ranks)
	}
	if !isAllReduce {
		report.AddProblem(s.rows[0].Line, "the table of nccl-tests %s: only that of the all-reduce is used", cmp.Or(s.test, "without the name of its test"))
	}
	for _, row := range s.rows {
		switch {
		case !isAllReduce:
			report.AddIgnored(row.Line, otherCollective)
		case !(row.Bytes > 0 && row.Seconds > 0):
			report.AddIgnored(row.Line, emptyCollective)
		default:
			r.Run.AllReduces = append(r.Run.AllReduces, row.AllReduce)
			report.Records++
			report.LinesUsed++
		}
	}
}

// isAllReduceByBandwidth reports whether a table without a name is about an all-reduce, which the
// ratio of its bandwidths shows: nccl-tests computes the bus bandwidth by multiplying the bandwidth
// by a factor that depends on the collective.
func (s *ncclState) isAllReduceByBandwidth() bool {
	largest := slices.MaxFunc(s.rows, func(a, b ncclRow) int { return cmp.Compare(a.Bytes, b.Bytes) })
	n := float64(s.ranks)
	return largest.reduces && s.ranks > 1 && math.Abs(largest.ratio/(2*(n-1)/n)-1) < 0.05
}

// The OSU micro-benchmarks print a table per test. Only osu_allreduce is used, whose first column
// after the size in bytes is the mean over the ranks. The output lacks the number of ranks:
//
//	# OSU MPI-CUDA Allreduce Latency Test v7.4
//	# Datatype: MPI_CHAR.
//	# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
//	1048576               230.90            228.10            233.70         100

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

func osuStateOf(log *logline.Log) *osuState {
	return logline.FormatState[osuState](&log.States, logline.OSU)
}

func readOSUTitle(log *logline.Log, m []byte) logline.Result {
	words := bytes.Fields(m)
	log.Block = logline.OSU
	osuStateOf(log).columns = 2
	osuStateOf(log).isAllReduce = len(words) > 5 && string(words[3]) == "Allreduce" && string(words[4]) == "Latency" && string(words[5]) == "Test"
	if !osuStateOf(log).isAllReduce {
		return log.Refuse("%.100q: only the latency of osu_allreduce is used", m)
	}
	beginBenchmarkRun(log)
	log.CountLine(logline.OSU)
	return logline.Used
}

// readOSULine reads a heading or a row of the table. Another line ends it.
func readOSULine(log *logline.Log, m []byte) logline.Result {
	if m[0] == '#' && !scan.HasPrefix(m, "# OSU ") {
		if scan.HasPrefix(m, "# Size") && !bytes.Contains(m, []byte("Latency(us)")) && !bytes.Contains(m, []byte("Latency (us)")) {
			osuStateOf(log).isAllReduce = false // another quantity
		}
		if scan.HasPrefix(m, "# Size") {
			osuStateOf(log).columns = 1 + bytes.Count(m, []byte("(us)")) + bytes.Count(m, []byte("Iterations"))
		}
		return logline.Idle
	}
	fields := bytes.Fields(m)
	size, okSize := scan.ParseFloat(fields[0])
	if !scan.IsDigit(m[0]) || !okSize || size != float64(int64(size)) || len(fields) != osuStateOf(log).columns { // such as a line of another program
		if !okSize {
			log.Block = logline.NoBlock
		}
		return logline.Unknown
	}
	micro, ok := scan.ParseFloat(fields[1])
	switch {
	case !ok:
		return logline.Unknown
	case !osuStateOf(log).isAllReduce:
		log.In.Report.AddIgnored(log.Lines.Number, otherCollective)
		return logline.Pending
	case !(size > 0 && micro > 0):
		log.In.Report.AddIgnored(log.Lines.Number, emptyCollective)
		return logline.Pending
	}
	r := &log.CountLine(logline.OSU).Run
	if len(r.AllReduces) >= maxCollectiveRows {
		return log.Refuse("the table has more than %d rows; this one is not used", maxCollectiveRows)
	}
	r.AllReduces = append(r.AllReduces, runs.AllReduce{Bytes: size, Seconds: micro / 1e6, Line: log.Lines.Number})
	log.In.Report.Records++
	return logline.Used
}
