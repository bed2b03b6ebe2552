package horovod

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"lockstep/pkg/internal/device"
)

// cycleMessage is the message that a worker sends to the coordinator in each cycle, or the coordinator's
// answer. The answer contains the tensors to reduce.
type cycleMessage struct {
	complete bool            // the worker announces nothing more before its tensors are reduced
	cached   []uint64        // tensors in the response cache, one bit per slot
	requests []tensorRequest // the other tensors
	failure  string          // of an answer: why the exchange has failed; empty: it goes on
}

// messagePayload is the variable part of a message. It is sent after the rest, encoded as JSON.
type messagePayload struct {
	Requests []tensorRequest `json:"requests,omitempty"`
	Failure  string          `json:"failure,omitempty"`
}

func newBitset(n int) []uint64 { return make([]uint64, (n+63)/64) }

func setBit(bits []uint64, i int)                 { bits[i/64] |= 1 << (i % 64) }
func isBitSet(bits []uint64, i int) bool          { return bits[i/64]>>(i%64)&1 != 0 }
func float64sFromBits(words []uint64) []float64   { return mapSlice(words, math.Float64frombits) }
func bitsFromFloat64s(numbers []float64) []uint64 { return mapSlice(numbers, math.Float64bits) }

func mapSlice[A, B any](a []A, f func(A) B) []B {
	b := make([]B, len(a))
	for i := range a {
		b[i] = f(a[i])
	}
	return b
}

// send sends m to a rank and returns the number of bytes sent. In the first word of a message, bit
// 0 is complete, and the other bits are the number of words of the payload.
func (c *Controller) send(ctx context.Context, to int, m cycleMessage) (bytes int, err error) {
	var text []byte
	if len(m.requests) > 0 || m.failure != "" {
		if text, err = json.Marshal(messagePayload{m.requests, m.failure}); err != nil {
			return 0, err
		}
		for len(text)%8 != 0 {
			text = append(text, ' ')
		}
	}
	first := uint64(len(text)/8) << 1
	if m.complete {
		first |= 1
	}
	head := float64sFromBits(append([]uint64{first}, m.cached...))
	if err := c.group.Send(ctx, device.Buffer{F64: head}, to); err != nil {
		return 0, err
	}
	if len(text) == 0 {
		return 8 * len(head), nil
	}
	words := make([]uint64, len(text)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(text[8*i:])
	}
	return 8*len(head) + len(text), c.group.Send(ctx, device.Buffer{F64: float64sFromBits(words)}, to)
}

func (c *Controller) receive(ctx context.Context, from int) (cycleMessage, error) {
	head := make([]float64, 1+len(newBitset(c.cache.slotCount())))
	if err := c.group.Recv(ctx, device.Buffer{F64: head}, from); err != nil {
		return cycleMessage{}, err
	}
	words := bitsFromFloat64s(head)
	m := cycleMessage{complete: words[0]&1 != 0, cached: words[1:]}
	n := words[0] >> 1
	if n == 0 {
		return m, nil
	}
	rest := make([]float64, n)
	if err := c.group.Recv(ctx, device.Buffer{F64: rest}, from); err != nil {
		return cycleMessage{}, err
	}
	var text []byte
	for _, w := range bitsFromFloat64s(rest) {
		text = binary.LittleEndian.AppendUint64(text, w)
	}
	var p messagePayload
	if err := json.Unmarshal(text, &p); err != nil {
		return cycleMessage{}, fmt.Errorf("read message from rank %d: %w", from, err)
	}
	m.requests, m.failure = p.Requests, p.Failure
	return m, nil
}
