package collective

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"lockstep/pkg/collective/internal/wire"
	"lockstep/pkg/internal/device"
)

// TestFailureWhileSending checks the error of rank 0 of 4, which waits until it can send to rank
// 1, when another rank fails. The test plays the neighbors: rank 1 never receives a piece.
func TestFailureWhileSending(t *testing.T) {
	t.Parallel()
	reset := func(c net.Conn) error { return errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close()) }
	write := func(c net.Conn, fs ...wire.Frame) error {
		for _, f := range fs {
			b := f.Encode()
			if _, err := c.Write(append(b[:], make([]byte, f.Length)...)); err != nil {
				return err
			}
		}
		return nil
	}
	piece := wire.Frame{Kind: wire.KindNumbers, Rank: 3, Number: 2, Length: 40}
	last := callSignature(kindBroadcast, device.Buffer{}, 0)
	for _, tt := range []struct {
		name string
		fail func(from3, to1 net.Conn) error
		want string
	}{
		{
			"the host of the previous rank is lost", func(from3, _ net.Conn) error { return reset(from3) },
			"broadcast 1: rank 3 is gone: its connection has ended (last seen in broadcast 1)",
		},
		{
			"the previous rank has noticed the loss of the next one's host", func(from3, _ net.Conn) error {
				return errors.Join(write(from3, piece, wire.Frame{Kind: wire.KindNote, State: wire.NoteGone, Rank: 1, Number: 7, What: last}), from3.Close())
			},
			"broadcast 1: rank 1 is gone: its connection has ended (last seen in broadcast 7)",
		},
		{
			"the previous rank fails", func(from3, _ net.Conn) error {
				return errors.Join(write(from3, wire.Frame{Kind: wire.KindNote, State: wire.NoteFailed, Rank: 3, Number: 1, What: last}), from3.Close())
			},
			"broadcast 1: rank 3 failed (last seen in broadcast 1); see the error message of that rank",
		},
		{
			"the next rank ends, because another is gone", func(from3, to1 net.Conn) error {
				return errors.Join(write(from3, piece, wire.Frame{Kind: wire.KindNote, State: wire.NoteGone, Rank: 2, Number: 1, What: last}), reset(to1))
			},
			"broadcast 1: rank 2 is gone: its connection has ended (last seen in broadcast 1)",
		},
		{
			"the next rank ends", func(_, to1 net.Conn) error { return reset(to1) },
			"broadcast 1: rank 1 is gone: its connection has ended (it no longer receives)",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := ringConnections("tcp", 4)
			if err != nil {
				t.Fatal(err)
			}
			g, err := NewRing("tcp ring", 0, 4, all[0], Options{})
			if err != nil {
				t.Fatal(err)
			}
			b := device.Buffer{F32: make([]float32, 1<<24)} // 64 MiB: more than the kernel holds
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- g.Broadcast(ctx, b, 0) }()
			call := wire.Frame{Kind: wire.KindCall, Rank: 3, Number: 1, What: callSignature(kindBroadcast, b, 0), Length: uint64(b.Len())}
			header := call.Encode()
			if _, err := all[3].To.Write(header[:]); err != nil {
				t.Fatal(err)
			}
			// Once the header of a piece has arrived after the call, rank 0 only sends.
			if _, err := io.ReadFull(all[1].From, make([]byte, 2*wire.EncodedFrameBytes)); err != nil {
				t.Fatal(err)
			}
			if err := tt.fail(all[3].To, all[1].From); err != nil {
				t.Fatal(err)
			}
			wantError(t, <-done, tt.want)
			_ = g.Close()
			for _, c := range all {
				_ = c.Close()
			}
		})
	}
}

// TestPreviousRankHasFinished checks that a rank that has ended its stream in good order is no
// failure, and that what it sent before can still be received.
func TestPreviousRankHasFinished(t *testing.T) {
	all, err := ringConnections("tcp", 2)
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewRing("tcp ring", 0, 2, all[0], Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.checkPreviousConnection(); err != nil || g.inEnded {
		t.Fatalf("the previous rank is there, but got ended %v, %v", g.inEnded, err)
	}
	want := wire.Frame{Kind: wire.KindToken, Rank: 1, Number: 3}
	for _, f := range []wire.Frame{want, {Kind: wire.KindNote, State: wire.NoteClosed, Rank: 1, Number: 3}} {
		b := f.Encode()
		if _, err := all[1].To.Write(b[:]); err != nil {
			t.Fatal(err)
		}
	}
	if err := all[1].To.Close(); err != nil {
		t.Fatal(err)
	}
	for !g.inEnded {
		if err := g.checkPreviousConnection(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := g.receiveFrame(context.Background()); err != nil || got != want {
		t.Errorf("received %+v, %v, want %+v", got, err, want)
	}
	_, err = g.receiveFrame(context.Background())
	wantError(t, err, "rank 1 has left the group")
	_, _ = g.Close(), all[1].Close()
}
