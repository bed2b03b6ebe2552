package collective

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"lockstep/pkg/collective/internal/wire"
	"lockstep/pkg/internal/process"
)

// checkPreviousConnection checks the connection from the previous rank while this rank waits until
// it can send. It returns an error if the connection is broken, or if its last frame is a note
// about a rank that has failed. Any other end of the stream is no error, because the previous rank
// may have finished its last operation.
//
// The frames before the note are kept, because this rank still has to receive the pieces in them.
// They are not more than the kernel's buffers contain, since the stream has ended.
func (r *Ring) checkPreviousConnection() error {
	if r.inEnded || !wire.PeerHasEnded(r.in) {
		return nil
	}
	if err := r.in.SetReadDeadline(time.Now().Add(graceTime)); err != nil {
		return r.recordLostConnection(r.previousRank())
	}
	rest, err := io.ReadAll(r.reader)
	r.reader.Reset(io.MultiReader(bytes.NewReader(rest), r.in))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // look again later
	}
	r.inEnded = true
	if len(rest) >= wire.EncodedFrameBytes {
		f := wire.DecodeFrame(rest[len(rest)-wire.EncodedFrameBytes:])
		if f.Kind == wire.KindNote && (f.State == wire.NoteFailed || f.State == wire.NoteGone) {
			return r.recordStateNote(f)
		}
	}
	if err != nil {
		return r.recordLostConnection(r.previousRank())
	}
	return nil
}

// awaitFailureNote returns the error for a rank that can no longer send to the next one. For
// graceTime it receives, because a note from the previous rank may name another rank as the
// cause. It drops the pieces that it receives, since the group has failed.
func (r *Ring) awaitFailureNote(ctx context.Context) error {
	r.idle = process.Stopwatch{}
	for {
		f, err := r.receiveFrame(ctx)
		if err != nil {
			return err
		}
		if f.Kind != wire.KindNumbers {
			continue
		}
		for left := f.Length; left > 0; {
			n := min(left, uint64(len(r.scratch)))
			if err := r.readFull(ctx, r.scratch[:n]); err != nil {
				return err
			}
			left -= n
		}
	}
}
