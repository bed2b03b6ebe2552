package logread

import (
	"fmt"
	"strings"
	"testing"
)

// ncclTable returns what nccl-tests prints: name is the line with the name of
// the test, and busFactor the bus bandwidth divided by the bandwidth.
func ncclTable(name string, ranks int, redop, root string, busFactor float64, sizes ...int) string {
	var b strings.Builder
	b.WriteString(name)
	fmt.Fprintf(&b, "# nThread 1 nGpus 1 minBytes 8 maxBytes 8388608 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n")
	for r := range ranks {
		fmt.Fprintf(&b, "#  Rank %2d Group  0 Pid %6d on     node01 device %2d [0x07] NVIDIA A100\n", r, 1000+r, r)
	}
	b.WriteString("#\n#                                       out-of-place                in-place\n")
	b.WriteString("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n")
	b.WriteString("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n")
	for _, size := range sizes {
		us := 10 + float64(size)/10000 // 10 GB/s
		alg := float64(size) / us / 1000
		fmt.Fprintf(&b, "%12d  %12d  %8s  %6s  %6s  %7.2f  %6.2f  %6.2f       0  %7.2f  %6.2f  %6.2f    N/A\n", size, size/4, "float", redop, root, us+1, alg, busFactor*alg, us, alg, busFactor*alg)
	}
	b.WriteString("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 12.5\n#\n")
	return b.String()
}

// osuTable returns what a test of the OSU micro-benchmarks prints.
func osuTable(title string, sizes ...int) string {
	text := "\n# OSU " + title + " v7.4\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n"
	for _, size := range sizes {
		text += fmt.Sprintf("%-12d %14.2f %14.2f %14.2f %6d\n", size, 10+float64(size)/10000, 9.0, 99.0, 100)
	}
	return text
}

// TestCollectiveBenchmarks checks the times of the all-reduce in the output of
// nccl-tests and of the OSU micro-benchmarks.
func TestCollectiveBenchmarks(t *testing.T) {
	const name = "# Collective test starting: all_reduce_perf\n"
	const old = "# nThread 1 nGpus 4 minBytes 8 maxBytes 16\n#   Rank  0 Pid 11 on a device  0 [0x07] V100\n#   Rank  1 Pid 11 on a device  1 [0x0a] V100\n" +
		"#   Rank  2 Pid 11 on a device  2 [0x0b] V100\n#   Rank  3 Pid 11 on a device  3 [0x0c] V100\n" +
		"#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n" +
		"     1048576        262144   float     sum    52.40   20.01   30.02  1e-06    51.90   20.20   30.30  1e-06\n"
	for what, c := range map[string]struct {
		text string
		want []string // kind, workers, bytes:seconds@line of each run
		says string
	}{
		"named":        {ncclTable(name, 2, "sum", "-1", 1, 0, 8, 1000000), []string{"nccl-tests 2 8:1e-05@12 1000000:0.00011@13"}, "1 line, the first is line 11: benchmark of the all-reduce: of 0 bytes"},
		"not named":    {ncclTable("", 4, "sum", "-1", 1.5, 8, 1000000), []string{"nccl-tests 4 8:1e-05@12 1000000:0.00011@13"}, "bus bandwidth is 2(N−1)/N"},
		"old":          {old, []string{"nccl-tests 4 1048576:5.19e-05@7"}, "bus bandwidth is 2(N−1)/N"},
		"other name":   {ncclTable("# Collective test starting: all_gather_perf\n", 4, "none", "-1", 0.75, 8, 1000000), nil, "benchmark of another collective"},
		"all-gather":   {ncclTable("", 4, "none", "-1", 0.75, 8, 1000000), nil, "2 lines, the first is line 12: benchmark of another collective"},
		"broadcast":    {ncclTable("", 2, "none", "0", 1, 8, 1000000), nil, "benchmark of another collective"},
		"reduce":       {ncclTable("", 2, "sum", "0", 1, 8, 1000000), nil, "benchmark of another collective"},
		"reduction":    {ncclTable("", 4, "sum", "-1", 0.75, 8, 1000000), nil, "benchmark of another collective"},
		"two":          {ncclTable(name, 2, "sum", "-1", 1, 8) + ncclTable(name, 4, "sum", "-1", 1.5, 8), []string{"nccl-tests 2 8:1e-05@11", "nccl-tests 4 8:1e-05@27"}, ""},
		"and training": {ncclTable(name, 2, "sum", "-1", 1, 8) + oneKerasEpoch, []string{"nccl-tests 2 8:1e-05@11", "Keras log 0"}, ""},
		"labels":       {"[1,0]<stdout>:" + strings.TrimSuffix(strings.ReplaceAll(ncclTable(name, 2, "sum", "-1", 1, 8), "\n", "\n[1,0]<stdout>:"), "[1,0]<stdout>:"), []string{"nccl-tests 2 8:1e-05@11"}, ""},
		"torn": {
			strings.SplitAfter(ncclTable(name, 2, "sum", "-1", 1, 8, 1000000), "\n")[0] + strings.Join(strings.SplitAfter(ncclTable("", 2, "sum", "-1", 1, 8), "\n")[:10], "") + "     1000000        250000     float     sum      -1   111",
			[]string{"nccl-tests 2 8:1e-05@11"},
			"line 12: last line is torn",
		},
		"cut row": {
			ncclTable(name, 2, "sum", "-1", 1, 8) + ncclTable(name, 2, "sum", "-1", 1) + "# nThread 1 nGpus 1 minBytes 8\n 8 2 float sum -1\n", []string{"nccl-tests 2 8:1e-05@11"}, "expected a row with the columns",
		},
		"OSU":            {"+ srun -n 16 ./osu_allreduce -f\n" + osuTable("MPI Allreduce Latency Test", 4, 1000000), []string{"OSU micro-benchmarks 16 4:1e-05@6 1000000:0.00011@7"}, "workers 16"},
		"OSU, CUDA":      {"mpirun -np 8 osu_allreduce -i 100 -n 3\n" + osuTable("MPI-CUDA Allreduce Latency Test", 1000000), []string{"OSU micro-benchmarks 8 1000000:0.00011@6"}, ""},
		"OSU, others":    {osuTable("MPI Allgather Latency Test", 4) + osuTable("MPI Non-Blocking Allreduce Latency Test", 4) + osuTable("MPI Bandwidth Test", 4), nil, "3 lines, the first is line 5: benchmark of another collective"},
		"OSU, two":       {"mpirun -np 8 osu_allreduce\n" + osuTable("MPI Allreduce Latency Test", 1000000) + "mpirun -np 4 osu_allreduce\n" + osuTable("MPI Allreduce Latency Test", 1000000), []string{"OSU micro-benchmarks 8 1000000:0.00011@6", "OSU micro-benchmarks 4 1000000:0.00011@12"}, ""},
		"OSU, torn":      {"mpirun -np 8 osu_allreduce\n" + osuTable("MPI Allreduce Latency Test", 1000000) + "2000000     21", []string{"OSU micro-benchmarks 8 1000000:0.00011@6"}, "line 7: last line is torn"},
		"OSU, and words": {"mpirun -np 8 osu_allreduce\n" + osuTable("MPI Allreduce Latency Test", 1000000) + "done\n77 12.5\n", []string{"OSU micro-benchmarks 8 1000000:0.00011@6"}, "of unknown form"},
	} {
		found, report := readReport(t, "collectives.log", c.text)
		var got []string
		for _, r := range found {
			line := fmt.Sprintf("%s %d", r.Kind, r.Info.Workers)
			for _, a := range r.AllReduces {
				line += fmt.Sprintf(" %.0f:%.6g@%d", a.Bytes, a.Seconds, a.Line)
			}
			got = append(got, line)
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) || !strings.Contains(report.String(), c.says) {
			t.Errorf("%s: got %q, want %q\n%s, want %q", what, got, c.want, report, c.says)
		}
		if n := report.LinesUsed + report.LinesIgnored(); n > report.Lines {
			t.Errorf("%s: %d lines used or ignored, of %d", what, n, report.Lines)
		}
	}
	rows := ""
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.log": ncclTable(name, 2, "sum", "-1", 1, 1000000)})
	_, err := Rows(Trials, []string{dir}, func(r Row) error { rows += fmt.Sprintf("%s %d %g", r.Name, r.Step, r.Value); return nil })
	if check(t, err); rows != "all_reduce_seconds 1000000 0.00011" {
		t.Errorf("rows %q", rows)
	}
}
