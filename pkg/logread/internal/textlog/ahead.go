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
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// The meaning of a line depends on the lines before it, so a text log is read
// from its beginning to its end. But in a log with tens of thousands of epochs
// (epochlines.go), the only context that a line of the usual form needs is its
// epoch. Then several goroutines read the rest of the file ahead in chunks,
// each from a line with an epoch's time to the first line of another form. When
// the reader reaches a chunk, it adopts the chunk's epochs if they continue the
// previous ones; otherwise it reads the chunk itself. TestAhead compares both.

const (
	minAheadBytes = 1 << 17 // minimum length of a chunk in bytes
	// A chunk has 1/aheadShare of the remaining bytes per goroutine: the chunks
	// become shorter towards the end, so that all goroutines finish at the same
	// time.
	aheadShare = 2
	// aheadReadBytes is the number of bytes read at once. It is larger than
	// scan.LineReader uses, since parsing is slow for a while after a system
	// call.
	aheadReadBytes = 1 << 20
	// minFastBytes is the number of bytes that must have the usual form before
	// the rest of the log is read ahead.
	minFastBytes = 1 << 15
	// aheadProbe is the number of bytes in which the line with an epoch's
	// time at the beginning of a chunk is searched.
	aheadProbe = 1 << 12
)

// readAheadState is the state of the goroutines that read later parts of a file
// while the reader, which begins at the start of the file, reads earlier parts.
type readAheadState struct {
	ctx     context.Context // context of the call that waits for all goroutines
	at      io.ReaderAt
	heading string       // text between stamp and message of the lines
	epochs  []runs.Epoch // the epochs of all chunks, with a section for each chunk
	chunks  []readAheadChunk
	joined  int           // number of chunks that the reader has passed
	ready   chan struct{} // closed when the chunks are known
	next    atomic.Int64  // index of the first chunk that no goroutine has begun
	stopped atomic.Bool   // the goroutines must end
	wg      sync.WaitGroup
}

// readAheadChunk is a range of the file with complete lines, the first of which
// has an epoch's time. The fields start and lineBefore are estimated from the
// number of that epoch.
type readAheadChunk struct {
	from, to   int64           // offsets in the file
	start      int             // estimated index of its first epoch in the array of all epochs
	lineBefore int             // estimated number of the line before it
	lines      epochLineParser // reads the chunk
	read       int64           // offset up to which it was read
	done       chan struct{}   // closed when it was read
}

// unlabeledEpochs returns the epochs of lines without the label of a rank, to
// which readEpochLines adds epochs. It returns nil if there are no such epochs,
// or if such lines may have another meaning at the current line.
func (e *epochReader) unlabeledEpochs() *record.RankEpochs {
	if e.Rank >= 0 || e.Block != logline.NoBlock || e.Current.Closed || !e.Current.HasTimes {
		return nil
	}
	list := e.Current.Epochs.Find(logline.RankID{Rank: -1})
	if list == nil || list.Index != nil || len(list.Epochs) == 0 {
		return nil
	}
	return list
}

// epochReader reads the lines of epochs in a log at a high speed.
type epochReader struct {
	*logline.Log
	parser      epochLineParser
	parsedBytes int64           // number of bytes that parser has parsed
	ahead       *readAheadState // later chunks of the file, which are read in advance; nil before this was tried
	minChunk    int64           // minimum bytes of a chunk that is read ahead; 0 means minAheadBytes
}

// epochReaderOf returns the reader of a log's epochs.
func epochReaderOf(log *logline.Log) *epochReader {
	e := logline.State[epochReader](&log.States, logline.SC21)
	e.Log = log
	return e
}

// readEpochLines reads the following lines in the buffer as long as
// epochLineParser recognizes them.
func readEpochLines(ctx context.Context, log *logline.Log, _ *logline.Rule) {
	epochReaderOf(log).readLines(ctx)
}

// readLines is readEpochLines for the log of e.
func (e *epochReader) readLines(ctx context.Context) {
	list := e.unlabeledEpochs()
	if list == nil || !e.parser.setHeading(e.Heading) {
		return
	}
	f, l := &e.parser, e.Lines
	f.day, f.stamp, f.ended = &e.Day, [3]uint64{}, e.Current.Ended
	f.epochs, f.blank, f.line = list.Epochs, list.Blank, l.Number
	limit := math.MaxInt
	if e.ahead == nil { // decide early whether to read ahead
		limit = int(minFastBytes)
	}
	n := f.parse(l.Buf[l.Start:l.End], limit)
	l.Start += n
	e.adoptEpochs(f)
	e.parsedBytes += int64(n)
	if e.ahead == nil && e.parsedBytes >= min(minFastBytes, e.minChunkBytes()) && e.parsedBytes > (l.BytesRead-int64(l.End-l.Start))*3/4 {
		e.startReadAhead(ctx)
	}
}

// adoptEpochs adds the epochs that f has parsed from the lines after the
// current line to the run.
func (e *epochReader) adoptEpochs(f *epochLineParser) {
	list, n := e.unlabeledEpochs(), f.line-e.Lines.Number
	e.Lines.Number = f.line
	e.Current.LinesByFormat[logline.SC21] += n
	e.Current.Lines += n
	e.Current.Ended = f.ended
	e.In.Report.LinesUsed += int64(n)
	e.In.Report.Records += int64(len(f.epochs) - len(list.Epochs))
	list.Epochs = f.epochs
}

// startReadAhead starts goroutines that read the rest of the file in chunks, if
// it is long enough.
func (e *epochReader) startReadAhead(ctx context.Context) {
	in, list := e.In, e.unlabeledEpochs()
	a := &readAheadState{ctx: ctx, at: in.ReaderAt, heading: string(e.Heading), ready: make(chan struct{})}
	e.ahead = a // set in any case, so that this is tried only once
	if in.ReaderAt == nil || in.Goroutines < 2 || len(list.Epochs) < 2 || in.Size-e.Lines.BytesRead < e.minChunkBytes() {
		return
	}
	for range min(int64(in.Goroutines-1), (in.Size-e.Lines.BytesRead)/e.minChunkBytes()) { // the goroutines start while the chunks are being computed
		a.wg.Go(func() {
			buf := make([]byte, min(aheadReadBytes, in.Size))
			<-a.ready
			for a.readChunk(buf) {
			}
		})
	}
	defer close(a.ready)
	chunks, total := e.splitRest(list.Epochs)
	if len(chunks) == 0 {
		return
	}
	a.chunks, a.epochs = chunks, make([]runs.Epoch, total)
	days := make([]logline.Day, len(chunks))
	for i := range chunks {
		p := &chunks[i]
		p.read, p.done = p.from, make(chan struct{})
		p.lines = e.parser
		p.lines.reset(&days[i], a.epochs[p.start:p.start:a.sectionEnd(i)])
		p.lines.line = p.lineBefore
	}
	list.Epochs = a.epochs[:copy(a.epochs, list.Epochs):chunks[0].start]
	e.Lines.Source = io.LimitReader(e.Lines.Source, chunks[0].from-e.Lines.BytesRead)
}

// minChunkBytes returns the minimum length of a chunk in bytes.
func (e *epochReader) minChunkBytes() int64 {
	if e.minChunk > 0 {
		return e.minChunk
	}
	return minAheadBytes
}

// splitRest splits the unread part of the file into chunks, and estimates the
// total number of epochs in the file. It returns no chunks if the unread part
// is too short or does not continue the epochs that were read.
func (e *epochReader) splitRest(epochs []runs.Epoch) (chunks []readAheadChunk, total int) {
	in, taken := e.In, e.Lines.BytesRead-int64(e.Lines.End-e.Lines.Start)
	last := epochs[len(epochs)-1]
	lines := last.Line - epochs[len(epochs)-2].Line // per epoch
	each := float64(taken) / float64(len(epochs))   // bytes per epoch
	total = len(epochs) - 1
	probe := make([]byte, aheadProbe)
	for next := e.Lines.BytesRead; ; {
		share := max((in.Size-next)/int64(aheadShare*in.Goroutines), e.minChunkBytes())
		from := next
		if next += share; next > in.Size {
			break
		}
		k, err := in.ReaderAt.ReadAt(probe, from)
		begins, number := e.parser.findEpochTime(probe[:k])
		more := number - last.Epoch
		p := readAheadChunk{from: from + int64(begins), to: in.Size, start: len(epochs) + more - 1, lineBefore: last.Line + more*lines - 1}
		switch {
		case err != nil && !errors.Is(err, io.EOF), begins > 0 && (p.start <= total || float64(p.start) > 2*float64(from)/each):
			return nil, 0
		case begins == 0:
			continue
		}
		total = p.start
		if k := len(chunks); k > 0 {
			chunks[k-1].to = p.from
		}
		chunks = append(chunks, p)
	}
	if len(chunks) == 0 {
		return nil, 0
	}
	return chunks, total + int(1.05*float64(in.Size-chunks[len(chunks)-1].from)/each) + 16
}

// sectionEnd returns the index at which the section of chunk i ends in the
// array of all epochs.
func (a *readAheadState) sectionEnd(i int) int {
	if i+1 < len(a.chunks) {
		return a.chunks[i+1].start
	}
	return len(a.epochs)
}

// reset prepares the parser for another part of the log. The parser then
// appends the epochs that it finds to epochs, and caches the current day in
// day.
func (s *epochLineParser) reset(day *logline.Day, epochs []runs.Epoch) {
	s.day, s.stamp, s.ended, s.epochs = day, [3]uint64{}, noStamp, epochs
}

// findEpochTime returns the index in b of the first line that follows a line
// end and contains the time of an epoch, and the number of this epoch. index is
// 0 if b has no such line.
func (s *epochLineParser) findEpochTime(b []byte) (index, number int) {
	one, day, epochs := *s, logline.Day{}, [1]runs.Epoch{}
	for {
		i := bytes.IndexByte(b[index:], '\n')
		if i < 0 {
			return 0, 0
		}
		index += i + 1
		one.reset(&day, epochs[:0])
		if one.parse(b[index:], 1); len(one.epochs) > 0 {
			return index, epochs[0].Epoch
		}
	}
}

// readChunk reads the next chunk that no goroutine has begun. It returns false
// if no such chunk is left.
func (a *readAheadState) readChunk(buf []byte) bool {
	i := int(a.next.Add(1)) - 1
	if i >= len(a.chunks) {
		return false
	}
	p := &a.chunks[i]
	for p.read < p.to && !a.stopped.Load() && a.ctx.Err() == nil {
		left := p.to - p.read
		n, err := a.at.ReadAt(buf[:min(int64(len(buf)), left+maxEpochLine)], p.read)
		used := p.lines.parse(buf[:n], int(left))
		p.read += int64(used)
		if n-used >= maxEpochLine || used == 0 || err != nil {
			break // reached a line of another form or the end
		}
	}
	close(p.done)
	return true
}

// adoptChunks is called when the reader reaches the beginning of a chunk. It
// adopts the epochs that goroutines have read from this and following chunks. If
// a goroutine has left the rest of a chunk unread, adoptChunks makes that rest
// the source of the reader and returns true. It returns false after the last
// chunk.
func (e *epochReader) adoptChunks() bool {
	a, l := e.ahead, e.Lines
	if a == nil || l.Err != nil {
		return false
	}
	for a.joined < len(a.chunks) {
		p := &a.chunks[a.joined]
		for reading := true; reading; {
			select {
			case <-p.done:
				reading = false
			default:
				if !a.readChunk(l.Buf) { // the buffer is empty
					<-p.done
				}
			}
		}
		last := a.joined == len(a.chunks)-1
		from := p.from
		if e.adoptChunk(p) {
			from = p.read
		}
		if a.joined++; from < p.to || last { // the file may have grown
			to := p.to
			if last {
				to = math.MaxInt64
			}
			l.ContinueWith(record.NewCountingReader(a.ctx, io.NewSectionReader(a.at, from, to-from), e.In.Report))
			return true
		}
	}
	return false
}

// adoptChunk appends the epochs that were read ahead from chunk p. It returns
// false, and stops reading ahead, if they do not continue the current run.
func (e *epochReader) adoptChunk(p *readAheadChunk) bool {
	a, f, list := e.ahead, &p.lines, e.unlabeledEpochs()
	if list == nil || string(e.Heading) != a.heading || len(f.epochs) == 0 || p.read > p.to ||
		f.epochs[0].Epoch <= list.Epochs[len(list.Epochs)-1].Epoch || e.Current.Ended-f.started > logline.ClockToleranceMs {
		a.stopped.Store(true)
		return false
	}
	if more := e.Lines.Number - p.lineBefore; more != 0 {
		f.line += more
		for i := range f.epochs {
			f.epochs[i].Line += more
		}
	}
	n := p.read - p.from
	e.Lines.BytesRead += n
	e.In.Report.Bytes += n
	if k := len(list.Epochs); k == p.start && &list.Epochs[0] == &a.epochs[0] {
		f.epochs = a.epochs[: k+len(f.epochs) : a.sectionEnd(a.joined)]
	} else {
		f.epochs = append(list.Epochs, f.epochs...)
	}
	e.adoptEpochs(f)
	return true
}

// stop stops the goroutines and waits for them. It does nothing if a is nil.
func (a *readAheadState) stop() {
	if a != nil {
		a.stopped.Store(true)
		a.wg.Wait()
	}
}
