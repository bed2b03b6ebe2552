package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"lockstep/pkg/bench/internal/comparison"
)

// AllReduces contains the results of MeasureAllReduce.
type AllReduces struct {
	Machine string         `json:"machine"`
	Commit  string         `json:"commit"`
	Skipped []string       `json:"skipped"` // programs that are not installed, and what to do
	Rows    []AllReduceRow `json:"rows"`    // by ranks, size and side
}

// AllReduceRow contains the columns of a row of nccl-tests: one program's all-reduces of one size.
type AllReduceRow struct {
	Ranks int    `json:"ranks"`
	Side  string `json:"side"` // program and transport
	Bytes int    `json:"size_bytes"`
	Count int    `json:"count"` // elements
	Type  string `json:"type"`
	// Microseconds is the time of one all-reduce, the median over the repeats.
	Microseconds float64 `json:"time_us"`
	// AlgorithmGBs is the size divided by the time, in GB/s. For n ranks, BusGBs is 2(n−1)/n times
	// as much: the bandwidth at which each rank must at least send, as nccl-tests define it.
	AlgorithmGBs float64 `json:"algbw_gb_per_second"`
	BusGBs       float64 `json:"busbw_gb_per_second"`
	Wrong        int     `json:"wrong"` // wrong elements on all ranks, in the checks before and after the repeats
	Repeats      int     `json:"repeats"`
	// Comparisons compares this row, if it is one of Lockstep's, with each peer.
	Comparisons []Record `json:"comparisons,omitempty"`

	key        string    // see lockstepSide.key, or name of the peer
	bandwidths []float64 // AlgorithmGBs of each repeat
}

// newAllReduceRow returns the row of side s for buffers of size bytes. seconds contains the time of
// count all-reduces in each repeat.
func newAllReduceRow(s allReduceSide, ranks, size, count int, seconds []float64, wrong int) AllReduceRow {
	r := AllReduceRow{Ranks: ranks, Side: s.About.Name, key: s.key, Bytes: size, Count: size / 4, Type: "float", Wrong: wrong, Repeats: len(seconds)}
	r.bandwidths = comparison.PerSecond(float64(size)*float64(count)/1e9, seconds)
	r.Microseconds = comparison.Median(seconds) / float64(count) * 1e6
	r.AlgorithmGBs = comparison.Median(r.bandwidths)
	r.BusGBs = r.AlgorithmGBs * 2 * float64(ranks-1) / float64(ranks)
	return r
}

func (a *AllReduces) addRows(rows []AllReduceRow) {
	for i := range rows {
		ours := &rows[i]
		for _, peer := range rows {
			if ours.isPeer() || !peer.isPeer() || peer.key == peerStream && ours.key != transportTCP {
				continue
			}
			r := Record{
				Name: fmt.Sprintf("all-reduce of %s, %d workers, %s", formatBytes(ours.Bytes), ours.Ranks, ours.Side),
				Unit: "GB/s", Peer: peer.Side, Target: allReduceTarget(ours, peer.key), Machine: a.Machine, Commit: a.Commit,
			}
			ours.Comparisons = append(ours.Comparisons, comparison.CompareRates(r, ours.bandwidths, peer.bandwidths))
		}
	}
	a.Rows = append(a.Rows, rows...)
}

func (r *AllReduceRow) isPeer() bool { return slices.Contains(AllReducePeers(), r.key) }

// allReduceTarget returns the smallest required ratio of Lockstep's row ours to a peer, on an idle
// machine with one core per rank. It is 0 if there is no target. Only two workers have targets: over
// shared memory, and over TCP in comparison with a stream.
func allReduceTarget(ours *AllReduceRow, peer string) float64 {
	switch {
	case peer == peerStream && ours.Bytes >= 8_000_000:
		return 0.75
	case ours.Ranks != 2 || ours.key != transportShared || peer == peerStream:
		return 0
	case peer == peerOpenMPI && ours.Bytes >= 64_000:
		return 1
	case peer == peerOpenMPI:
		return 0.9
	case ours.Bytes >= 100_000_000:
		return 4
	}
	return 2
}

// noteSkipped adds reason, which says that a program is missing, unless it was added before.
func (a *AllReduces) noteSkipped(reason string) {
	if !slices.Contains(a.Skipped, reason) {
		a.Skipped = append(a.Skipped, reason)
	}
}

// CheckResults returns an error if a result was wrong.
func (a *AllReduces) CheckResults() error {
	for _, r := range a.Rows {
		if r.Wrong > 0 {
			return fmt.Errorf("bench allreduce: %d wrong elements in all-reduces of %s by %d workers of %s", r.Wrong, formatBytes(r.Bytes), r.Ranks, r.Side)
		}
	}
	return nil
}

// Write writes the rows with the columns of nccl-tests, then the comparisons of Lockstep's first transport
// and those with a target. As JSON, it writes all comparisons.
func (a *AllReduces) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(a)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "size\tcount\ttype\tredop\tranks\ttime\talgbw\tbusbw\t#wrong\t  side")
	fmt.Fprintln(t, "(B)\t(elements)\t\t\t\t(us)\t(GB/s)\t(GB/s)\t\t")
	var records []Record
	for _, r := range a.Rows {
		fmt.Fprintf(t, "%d\t%d\t%s\tsum\t%d\t%.2f\t%.3f\t%.3f\t%d\t  %s\n", r.Bytes, r.Count, r.Type, r.Ranks, r.Microseconds, r.AlgorithmGBs, r.BusGBs, r.Wrong, r.Side)
		for _, c := range r.Comparisons {
			if r.key == a.Rows[0].key || c.Target > 0 {
				records = append(records, c)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range a.Skipped {
		fmt.Fprintf(w, "skipped %s\n", s)
	}
	if len(records) == 0 {
		_, err := fmt.Fprintf(w, "machine: %s; commit %s\n", a.Machine, a.Commit)
		return err
	}
	fmt.Fprintln(w)
	return comparison.WriteRecords(w, records, false)
}
