// Package transfers contains recordings of all-reduces: which rank sent which chunk to whom and
// when. Package collective makes them, and package figure draws them.
package transfers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"lockstep/pkg/internal/safeopen"
)

// Recording is an all-reduce as the ranks executed it, a schedule of transfers with their times.
type Recording struct {
	Algorithm string     `json:"algorithm"`
	Transport string     `json:"transport"`
	Ranks     int        `json:"ranks"`
	PerNode   int        `json:"ranks_per_node,omitempty"` // 0: all ranks are on one node
	Chunks    int        `json:"chunks"`                   // the buffer is divided into this number of chunks
	Bytes     int        `json:"bytes"`                    // size of the buffer of each rank
	Transfers []Transfer `json:"transfers"`                // in the order of the schedule
}

// Transfer is the sending of consecutive chunks from one rank to another. Times are measured from
// the first send of the all-reduce. Between hosts, their accuracy depends on how well the clocks of
// the hosts agree.
type Transfer struct {
	Step     int           `json:"step"` // from 0; transfers of one step take place at the same time
	From     int           `json:"from"`
	To       int           `json:"to"`
	Lo       int           `json:"lo"` // the chunks [Lo, Hi)
	Hi       int           `json:"hi"`
	Add      bool          `json:"add"` // the receiver added the chunks to its own; otherwise it overwrote its own
	Bytes    int           `json:"bytes"`
	Sent     time.Duration `json:"sent_ns"`     // the sender passed the chunks to the transport
	Waited   time.Duration `json:"waited_ns"`   // the receiver began to wait for them
	Received time.Duration `json:"received_ns"` // the receiver had them, and had added them
}

// Validate returns an error if r is not the recording of an all-reduce.
func (r *Recording) Validate() error {
	if r.Ranks < 1 || r.Chunks < 1 || r.Bytes < 0 {
		return fmt.Errorf("validate recording: got %d ranks, %d chunks and %d bytes, want at least 1 rank and 1 chunk", r.Ranks, r.Chunks, r.Bytes)
	}
	if r.Ranks > 1 && len(r.Transfers) == 0 {
		return errors.New("validate recording: it has no transfers: is this a file of lockstep transfers?")
	}
	for i, t := range r.Transfers {
		if min(t.From, t.To) < 0 || max(t.From, t.To) >= r.Ranks || t.From == t.To || t.Lo < 0 || t.Lo >= t.Hi || t.Hi > r.Chunks || t.Step < 0 || t.Bytes < 0 {
			return fmt.Errorf("validate recording: transfer %d of chunks %d to %d from rank %d to rank %d in step %d is impossible with %d ranks and %d chunks", i, t.Lo, t.Hi-1, t.From, t.To, t.Step, r.Ranks, r.Chunks)
		}
		if min(t.Sent, t.Waited, t.Received) < 0 || t.Received < t.Waited {
			return fmt.Errorf("validate recording: transfer %d was sent at %v, and received from %v to %v", i, t.Sent, t.Waited, t.Received)
		}
	}
	return nil
}

// SentBytes returns how many bytes each rank sent.
func (r *Recording) SentBytes() []int {
	sent := make([]int, r.Ranks)
	for _, t := range r.Transfers {
		sent[t.From] += t.Bytes
	}
	return sent
}

// SentRange returns the least and most bytes that a rank sent, as multiples of its buffer's size.
func (r *Recording) SentRange() (least, most float64) {
	sent := r.SentBytes()
	size := float64(max(r.Bytes, 1))
	return float64(slices.Min(sent)) / size, float64(slices.Max(sent)) / size
}

// Duration returns the time from the first sending to the last reception.
func (r *Recording) Duration() time.Duration {
	var last time.Duration
	for _, t := range r.Transfers {
		last = max(last, t.Received)
	}
	return last
}

// Steps returns the number of steps.
func (r *Recording) Steps() int {
	steps := 0
	for _, t := range r.Transfers {
		steps = max(steps, t.Step+1)
	}
	return steps
}

// Contributions returns, by rank and chunk, how many ranks have contributed to the chunk's sum
// after the given number of steps.
func (r *Recording) Contributions(steps int) [][]int {
	list := make([][]int, r.Ranks)
	for rank := range list {
		list[rank] = make([]int, r.Chunks)
		for c := range list[rank] {
			list[rank][c] = 1
		}
	}
	for step := range min(steps, r.Steps()) { // a rank sends what it has from earlier steps
		before := make([][]int, r.Ranks)
		for rank := range list {
			before[rank] = slices.Clone(list[rank])
		}
		for _, t := range r.Transfers {
			for c := t.Lo; c < t.Hi && t.Step == step; c++ {
				if t.Add {
					list[t.To][c] += before[t.From][c]
				} else {
					list[t.To][c] = before[t.From][c]
				}
			}
		}
	}
	return list
}

// Describe returns a sentence about what was recorded and how much the ranks sent.
func (r *Recording) Describe() string {
	least, most := r.SentRange()
	sent := fmt.Sprintf("each rank sent %.3g times its buffer", least)
	if most != least {
		sent = fmt.Sprintf("the ranks sent %.3g to %.3g times their buffers", least, most)
	}
	nodes := ""
	if r.PerNode > 0 && r.PerNode < r.Ranks {
		nodes = fmt.Sprintf(", %d per node", r.PerNode)
	}
	return fmt.Sprintf("All-reduce of %d bytes by %d ranks%s over %s by the algorithm %s: %d transfers in %d steps, %v; %s (2(N−1)/N is %.3g).",
		r.Bytes, r.Ranks, nodes, r.Transport, r.Algorithm, len(r.Transfers), r.Steps(), r.Duration().Round(time.Microsecond), sent, 2*float64(r.Ranks-1)/float64(r.Ranks))
}

// Format returns a table of the transfers in the order of the steps, after their description.
func (r *Recording) Format() string {
	var b strings.Builder
	b.WriteString(r.Describe() + "\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "step\tfrom\tto\tchunks\tbytes\treceiver\tsent, ms\treceived, ms")
	for _, t := range r.Transfers {
		chunks, does := fmt.Sprint(t.Lo), "copies"
		if t.Hi > t.Lo+1 {
			chunks = fmt.Sprintf("%d-%d", t.Lo, t.Hi-1)
		}
		if t.Add {
			does = "adds"
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%d\t%s\t%.3f\t%.3f\n", t.Step+1, t.From, t.To, chunks, t.Bytes, does, t.Sent.Seconds()*1e3, t.Received.Seconds()*1e3)
	}
	_ = w.Flush() // writes to a strings.Builder never fail
	return b.String()
}

const maxRecordingBytes = 64 << 20

// Read reads a recording from a JSON file.
func Read(ctx context.Context, path string) (*Recording, error) {
	text, err := safeopen.ReadUserFile(ctx, path, maxRecordingBytes)
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	var r Recording
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read recording %s: %w", path, err)
	}
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("read recording %s: %w", path, err)
	}
	return &r, nil
}
