package textlog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// The meaning of a line depends on the lines above it, so a text log is read
// from its beginning to its end. But once a log turns out to have epochs by the
// ten thousand (epochlines.go), the only thing that a usual line needs from
// above is its epoch. The rest of the file is then read ahead in pieces by
// several goroutines, each from the line with an epoch's time to the first line
// of another form. When the reading from the beginning reaches a piece, it
// takes over the piece's epochs if they continue what is above; otherwise it
// reads the piece itself. TestAhead compares both ways.

const (
	leastAhead = 1 << 17 // least bytes of a piece
	// aheadShare divides what is left by the number of goroutines, so that
	// pieces become shorter towards the end and all goroutines finish at the
	// same time.
	aheadShare = 2
	// aheadChunk is the number of bytes read at once. It is larger than
	// elsewhere, since the scanner is slow for a while after a system call.
	aheadChunk = 1 << 20
	// usualFrom is how many bytes of a log must have the usual form before the
	// rest is read ahead.
	usualFrom = 1 << 15
	// aheadProbe is how many bytes are searched for the line with an epoch's
	// time at which a piece begins.
	aheadProbe = 1 << 12
)

// ahead reads a file ahead of the reading from its beginning.
type ahead struct {
	ctx     context.Context // of the call that waits for all goroutines
	at      io.ReaderAt
	heading string
	room    []runs.Epoch // the epochs of all pieces, each with its place
	pieces  []aheadPiece
	joined  int           // number of pieces that the reading from the beginning has passed
	ready   chan struct{} // closed when the pieces are known
	next    atomic.Int64  // index of the first piece that no goroutine has begun
	stopped atomic.Bool
	wg      sync.WaitGroup
}

// aheadPiece is a part of the file made of whole lines, the first of which has
// an epoch's time. Its estimates follow from that epoch's number.
type aheadPiece struct {
	from, to int64
	place    int        // index of its first epoch in room, if no epoch is missing
	above    int        // number of the line above it, if all epochs have equally many lines
	lines    epochLines // reads the piece
	read     int64      // offset up to which it was read
	done     chan struct{}
}

// usualTrack returns the track to which usual lines add epochs, or nil if such
// lines mean something else here.
func (t *textLog) usualTrack() *record.Track {
	if t.rank >= 0 || t.inBlock != noBlock || t.cur.closed || !t.cur.hasTimes {
		return nil
	}
	tr := t.cur.tracks.find(trackID{-1, 0})
	if tr == nil || tr.Index != nil || len(tr.Epochs) == 0 {
		return nil
	}
	return tr
}

// epochLines reads the following usual lines in the buffer.
func (t *textLog) epochLines(ctx context.Context) {
	tr := t.usualTrack()
	if tr == nil || !t.fast.setHeading(t.heading) {
		return
	}
	f, l := &t.fast, t.l
	f.day, f.stamp, f.ended = &t.day, [3]uint64{}, t.cur.ended
	f.epochs, f.blank, f.line = tr.Epochs, tr.Blank, l.Number
	limit := math.MaxInt
	if t.ahead == nil { // all goroutines wait for this decision
		limit = int(usualFrom)
	}
	n := f.read(l.Buf[l.Start:l.End], limit)
	l.Start += n
	t.takeEpochs(f)
	t.usualBytes += int64(n)
	if t.ahead == nil && t.usualBytes >= min(usualFrom, t.pieceBytes()) && t.usualBytes > (l.BytesRead-int64(l.End-l.Start))*3/4 {
		t.startAhead(ctx)
	}
}

// takeEpochs takes over what f has read after the current line.
func (t *textLog) takeEpochs(f *epochLines) {
	tr, n := t.usualTrack(), f.line-t.l.Number
	t.l.Number = f.line
	t.cur.forms[formSC21] += n
	t.cur.lines += n
	t.cur.ended = f.ended
	t.in.Report.LinesUsed += int64(n)
	t.in.Report.Records += int64(len(f.epochs) - len(tr.Epochs))
	tr.Epochs = f.epochs
}

// startAhead begins to read the rest of the file in pieces, if that is worth it.
func (t *textLog) startAhead(ctx context.Context) {
	in, tr := t.in, t.usualTrack()
	a := &ahead{ctx: ctx, at: in.ReaderAt, heading: string(t.heading), ready: make(chan struct{})}
	t.ahead = a // so that it is tried only once
	if in.ReaderAt == nil || in.Goroutines < 2 || len(tr.Epochs) < 2 || in.Size-t.l.BytesRead < t.pieceBytes() {
		return
	}
	for range min(int64(in.Goroutines-1), (in.Size-t.l.BytesRead)/t.pieceBytes()) { // they start while the pieces are computed
		a.wg.Go(func() {
			buf := make([]byte, min(aheadChunk, in.Size))
			<-a.ready
			for a.readPiece(buf) {
			}
		})
	}
	defer close(a.ready)
	pieces, places := t.divide(tr.Epochs)
	if len(pieces) == 0 {
		return
	}
	a.pieces, a.room = pieces, make([]runs.Epoch, places)
	days := make([]calendar, len(pieces))
	for i := range pieces {
		p := &pieces[i]
		p.read, p.done = p.from, make(chan struct{})
		p.lines = t.fast
		p.lines.reset(&days[i], a.room[p.place:p.place:a.end(i)])
		p.lines.line = p.above
	}
	tr.Epochs = a.room[:copy(a.room, tr.Epochs):pieces[0].place]
	t.l.Source = io.LimitReader(t.l.Source, pieces[0].from-t.l.BytesRead)
}

// pieceBytes returns the least length of a piece.
func (t *textLog) pieceBytes() int64 {
	if t.least > 0 {
		return t.least
	}
	return leastAhead
}

// divide divides the unread part of the file into pieces, and returns how many
// epochs there may be in all. It returns no pieces if that part is too short or
// does not look like the epochs that were read.
func (t *textLog) divide(epochs []runs.Epoch) (pieces []aheadPiece, places int) {
	in, taken := t.in, t.l.BytesRead-int64(t.l.End-t.l.Start)
	last := epochs[len(epochs)-1]
	lines := last.Line - epochs[len(epochs)-2].Line // per epoch
	each := float64(taken) / float64(len(epochs))   // bytes per epoch
	places = len(epochs) - 1
	probe := make([]byte, aheadProbe)
	for next := t.l.BytesRead; ; {
		share := max((in.Size-next)/int64(aheadShare*in.Goroutines), t.pieceBytes())
		from := next
		if next += share; next > in.Size {
			break
		}
		k, err := in.ReaderAt.ReadAt(probe, from)
		begins, number := t.fast.findTime(probe[:k])
		more := number - last.Epoch
		p := aheadPiece{from: from + int64(begins), to: in.Size, place: len(epochs) + more - 1, above: last.Line + more*lines - 1}
		switch {
		case err != nil && !errors.Is(err, io.EOF), begins > 0 && (p.place <= places || float64(p.place) > 2*float64(from)/each):
			return nil, 0
		case begins == 0:
			continue
		}
		places = p.place
		if k := len(pieces); k > 0 {
			pieces[k-1].to = p.from
		}
		pieces = append(pieces, p)
	}
	if len(pieces) == 0 {
		return nil, 0
	}
	return pieces, places + int(1.05*float64(in.Size-pieces[len(pieces)-1].from)/each) + 16
}

// end returns the end of the place for the epochs of piece i.
func (a *ahead) end(i int) int {
	if i+1 < len(a.pieces) {
		return a.pieces[i+1].place
	}
	return len(a.room)
}

// reset prepares s for another part of the log.
func (s *epochLines) reset(day *calendar, epochs []runs.Epoch) {
	s.day, s.stamp, s.ended, s.epochs = day, [3]uint64{}, noStamp, epochs
}

// findTime returns the index in b, after another line, of the first line with
// an epoch's time, and the number of the epoch. begins is 0 if there is none.
func (s *epochLines) findTime(b []byte) (begins, number int) {
	one, day, epochs := *s, calendar{}, [1]runs.Epoch{}
	for {
		i := bytes.IndexByte(b[begins:], '\n')
		if i < 0 {
			return 0, 0
		}
		begins += i + 1
		one.reset(&day, epochs[:0])
		if one.read(b[begins:], 1); len(one.epochs) > 0 {
			return begins, epochs[0].Epoch
		}
	}
}

// readPiece reads a piece that no goroutine has begun. It returns false if there is
// none.
func (a *ahead) readPiece(buf []byte) bool {
	i := int(a.next.Add(1)) - 1
	if i >= len(a.pieces) {
		return false
	}
	p := &a.pieces[i]
	for p.read < p.to && !a.stopped.Load() && a.ctx.Err() == nil {
		left := p.to - p.read
		n, err := a.at.ReadAt(buf[:min(int64(len(buf)), left+epochLine)], p.read)
		used := p.lines.read(buf[:n], int(left))
		p.read += int64(used)
		if n-used >= epochLine || used == 0 || err != nil {
			break // at a line of another form, or the end
		}
	}
	close(p.done)
	return true
}

// nextPiece continues with the pieces once the reading from the beginning has
// reached the first of them. It returns false after the last piece.
func (t *textLog) nextPiece() bool {
	a, l := t.ahead, t.l
	if a == nil || l.Err != nil {
		return false
	}
	for a.joined < len(a.pieces) {
		p := &a.pieces[a.joined]
		for reading := true; reading; {
			select {
			case <-p.done:
				reading = false
			default:
				if !a.readPiece(l.Buf) { // the buffer is empty
					<-p.done
				}
			}
		}
		last := a.joined == len(a.pieces)-1
		from := p.from
		if t.join(p) {
			from = p.read
		}
		if a.joined++; from < p.to || last { // the file may have grown
			to := p.to
			if last {
				to = math.MaxInt64
			}
			l.Continue(record.CountContent(a.ctx, io.NewSectionReader(a.at, from, to-from), t.in.Report))
			return true
		}
	}
	return false
}

// join appends the epochs that were parsed from the next piece of the file. It reports
// whether they continue the run of the lines before.
func (t *textLog) join(p *aheadPiece) bool {
	a, f, tr := t.ahead, &p.lines, t.usualTrack()
	if tr == nil || string(t.heading) != a.heading || len(f.epochs) == 0 || p.read > p.to ||
		f.epochs[0].Epoch <= tr.Epochs[len(tr.Epochs)-1].Epoch || t.cur.ended-f.started > clockTolerance {
		a.stopped.Store(true)
		return false
	}
	if more := t.l.Number - p.above; more != 0 {
		f.line += more
		for i := range f.epochs {
			f.epochs[i].Line += more
		}
	}
	n := p.read - p.from
	t.l.BytesRead += n
	t.in.Report.Bytes += n
	if k := len(tr.Epochs); k == p.place && &tr.Epochs[0] == &a.room[0] {
		f.epochs = a.room[: k+len(f.epochs) : a.end(a.joined)]
	} else {
		f.epochs = append(tr.Epochs, f.epochs...)
	}
	t.takeEpochs(f)
	return true
}

// wait stops the goroutines and waits for them.
func (a *ahead) wait() {
	if a != nil {
		a.stopped.Store(true)
		a.wg.Wait()
	}
}
