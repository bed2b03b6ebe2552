package schedule

import (
	"errors"
	"fmt"
	"time"
)

// Recording is an all-reduce as the ranks executed it: a schedule with the times of its
// transfers.
type Recording struct {
	Algorithm string             `json:"algorithm"`
	Transport string             `json:"transport"`
	Ranks     int                `json:"ranks"`
	PerNode   int                `json:"ranks_per_node,omitempty"` // 0: all ranks are on one node
	Chunks    int                `json:"chunks"`                   // the buffer is divided into this number of chunks
	Bytes     int                `json:"bytes"`                    // size of the buffer of each rank
	Transfers []RecordedTransfer `json:"transfers"`                // in the order of the schedule
}

// RecordedTransfer is a transfer with its times since the first transfer was sent. Between
// hosts they are as exact as the hosts' clocks agree.
type RecordedTransfer struct {
	Transfer
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

// Duration returns the time from the first sending to the last reception.
func (r *Recording) Duration() time.Duration {
	var last time.Duration
	for _, t := range r.Transfers {
		last = max(last, t.Received)
	}
	return last
}

// Contributions returns how many ranks' numbers each chunk of each rank consists of after the
// transfers that were received until a time: by rank and chunk.
func (r *Recording) Contributions(until time.Duration) [][]int {
	list := make([][]int, r.Ranks)
	for rank := range list {
		list[rank] = make([]int, r.Chunks)
		for c := range list[rank] {
			list[rank][c] = 1
		}
	}
	steps := 0
	for _, t := range r.Transfers {
		steps = max(steps, t.Step+1)
	}
	for step := range steps { // a rank sends what it has from earlier steps
		before := make([][]int, r.Ranks)
		for rank := range list {
			before[rank] = append([]int(nil), list[rank]...)
		}
		for _, t := range r.Transfers {
			for c := t.Lo; c < t.Hi && t.Step == step && t.Received <= until; c++ {
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
