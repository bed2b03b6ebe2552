package scaling

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCollectiveOfBenchmarks writes the output of nccl-tests by the model with α = 20 µs and
// 10 GB/s, and checks that the fit recovers both parameters: from one number of workers, since
// the sizes differ, and from several.
func TestCollectiveOfBenchmarks(t *testing.T) {
	const alpha, beta = 20e-6, 1e-10
	for _, counts := range [][]int{{4}, {2, 4, 8}} {
		dir := t.TempDir()
		rows := 0
		for _, n := range counts {
			f := float64(n)
			text := "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1 minBytes 1024 maxBytes 1073741824\n"
			for r := range n {
				text += fmt.Sprintf("#  Rank %2d Group  0 Pid 7 on node01 device %2d [0x07] A\n", r, r)
			}
			text += "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
			for size := 1 << 16; size <= 1<<28; size *= 16 {
				x := 2*(f-1)*alpha + 2*(f-1)/f*float64(size)*beta
				text += fmt.Sprintf("%d %d float sum -1 %.7g 0 0 0 %.7g 0 0 0\n", size, size/4, 2e6*x, 1e6*x)
				rows++
			}
			text += fmt.Sprintf("%d %d float sum -1 %.7g 0 0 0 %.7g 0 0 0\n", 1<<10, 1<<8, 1.0, 1e6*(2*(f-1)*alpha+2*(f-1)/f*1024*beta))
			rows++
			check(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("nccl-%d.log", n)), []byte(text), 0o644))
		}
		s, err := Read(dir)
		check(t, err)
		for _, p := range s.Problems {
			if strings.Contains(p.Reason, "epoch") {
				t.Errorf("got the problem %v", p)
			}
		}
		c, err := s.Collective("")
		check(t, err)
		if math.Abs(c.Alpha.Value/alpha-1) > 1e-5 || math.Abs(c.Beta.Value/beta-1) > 1e-5 || len(c.Rows) != rows {
			t.Errorf("%v workers: α %v, β %v from %d times, want %d", counts, c.Alpha, c.Beta, len(c.Rows), rows)
		}
		wantLine(t, []string{c.Sentence}, "has a latency of 20.00 µs", "transfers 10.00", fmt.Sprintf("with %d workers and 268435456 bytes, latency is", counts[len(counts)-1]))
	}
}
