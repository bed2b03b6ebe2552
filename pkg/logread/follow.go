package logread

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"lockstep/pkg/internal/plaintext"
	"lockstep/pkg/logread/internal/events"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

const (
	followEvery = time.Second

	// Limits of the texts that are kept, so that only what is appended has to
	// be read again: per file, and in all. Event files and run folders need no
	// copy.
	maxHeldText  = 16 << 20
	maxHeldTexts = 256 << 20
)

// Follower reads a folder of logs while it grows. Each Next waits for a change
// and reads only what was appended. Half a line at the end of a file is read
// once it is complete, a file that was truncated or replaced is read again, and
// new files and folders are found.
//
//	f, err := logread.Follow(ctx, "logs/demo")
//	if err != nil {
//		return err
//	}
//	for f.Next() { // at once with what is there, then after each change
//		fmt.Println(len(f.Runs()), "runs")
//	}
//	return f.Err()
//
// It compares the files' sizes and times regularly, since network file systems
// do not report changes. Compressed files, whole JSON documents and texts
// longer than 16 MiB are read again as a whole when they change. A Follower
// must be used by one goroutine at a time.
type Follower struct {
	// Every is the time between two checks, by default a second.
	Every time.Duration

	ctx     context.Context // of the loop over Next, which has no context argument
	options Options
	paths   []string
	files   map[string]*followed
	logs    *Logs
	began   bool
	read    int64
	err     error
}

// Follow follows the logs in and under the paths (where [runs.LocateLogs] finds
// them) until ctx is done.
func Follow(ctx context.Context, paths ...string) (*Follower, error) {
	return Options{}.Follow(ctx, paths...)
}

// Follow is like the function Follow, with options. Progress is not called.
func (o Options) Follow(ctx context.Context, paths ...string) (*Follower, error) {
	if len(paths) == 0 {
		return nil, errors.New("follow logs: no path given; name a folder of logs such as logs/demo")
	}
	f := &Follower{Every: followEvery, ctx: ctx, options: o, files: map[string]*followed{}, logs: &Logs{}}
	for _, path := range paths {
		place, err := runs.LocateLogs(path)
		if err != nil {
			return nil, fmt.Errorf("follow logs: %w", err)
		}
		f.paths = append(f.paths, place)
	}
	return f, nil
}

// Next waits for a change and reads it. The first call returns at once. Next
// returns false once the context is done, or after an error, which Err returns.
func (f *Follower) Next() bool {
	for f.err == nil {
		if f.began && !f.wait() || f.ctx.Err() != nil {
			return false
		}
		changed, err := f.look()
		switch {
		case f.ctx.Err() != nil:
			return false
		case err != nil:
			f.err = fmt.Errorf("follow logs: %w", err)
		case changed || !f.began:
			f.began = true
			return true
		}
	}
	return false
}

// wait waits for the next check. It returns false if the context is done.
func (f *Follower) wait() bool {
	t := time.NewTimer(max(f.Every, time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// Runs returns the runs as of the last Next, in natural order. The caller may
// keep them.
func (f *Follower) Runs() []runs.Run { return f.logs.Runs }

// Logs returns all that was read, with problems and reports.
func (f *Follower) Logs() *Logs { return f.logs }

// Err returns the error that ended Next, or nil if the context did.
func (f *Follower) Err() error { return f.err }

// BytesRead returns the number of content bytes read so far.
func (f *Follower) BytesRead() int64 {
	n := f.read
	for _, file := range f.files {
		n += file.bytes()
	}
	return n
}

// look reads what has changed in all paths.
func (f *Follower) look() (changed bool, err error) {
	lists := make([][]*task, len(f.paths))
	there := map[string]*task{}
	for i, path := range f.paths {
		lists[i], err = list(path)
		if err != nil && !(f.began && errors.Is(err, fs.ErrNotExist)) { // a folder that was moved may come back
			return false, err
		}
		for _, t := range lists[i] {
			there[t.path] = t
		}
	}
	for path, file := range f.files {
		if t := there[path]; t == nil || t.folder != (file.tail != nil) {
			f.read += file.bytes()
			delete(f.files, path)
			changed = true
		}
	}
	held := 0
	for path, t := range there {
		if f.files[path] == nil {
			f.files[path] = newFollowed(t)
			changed = true
		}
		held += len(f.files[path].text)
	}
	grown, err := f.refresh(there, held < maxHeldTexts)
	if err != nil || !grown && !changed {
		return false, err
	}
	f.logs = f.merged(lists)
	return true, nil
}

// refresh reads what was appended to the files, several at a time.
func (f *Follower) refresh(tasks map[string]*task, hold bool) (changed bool, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan *task)
	for range min(runtime.GOMAXPROCS(0), len(tasks)) {
		wg.Go(func() {
			for t := range next {
				grown, failed := f.files[t.path].refresh(f.ctx, t, hold)
				mu.Lock()
				changed, err = changed || grown, errors.Join(err, failed)
				mu.Unlock()
			}
		})
	}
	for _, t := range tasks {
		next <- t
	}
	close(next)
	wg.Wait()
	return changed, err
}

// merged makes runs of the files' parts, as Options.Read does.
func (f *Follower) merged(lists [][]*task) *Logs {
	logs := &Logs{}
	for i, path := range f.paths {
		var parts []*record.Part
		var reports []*record.Report
		for _, t := range lists[i] {
			own, report := f.files[t.path].copyParts()
			parts, reports = append(parts, own...), append(reports, report)
		}
		m := &merger{options: f.options, root: path}
		found := m.merge(parts)
		for _, r := range reports {
			logs.Reports = append(logs.Reports, reportOf(r))
			logs.Problems = append(logs.Problems, r.Problems()...)
		}
		for _, run := range found {
			if !slices.ContainsFunc(logs.Runs, func(r runs.Run) bool { return r.Dir == run.Dir }) {
				logs.Runs = append(logs.Runs, run)
			}
		}
	}
	return logs
}

// followed is a file or a run folder, and how far it was read.
type followed struct {
	tail    *runs.Tail     // of a run folder
	growing *runs.Growing  // of a file
	kind    *record.Format // of a text that is held; nil until known
	text    []byte         // what was read of the text
	events  *events.Reader // of an event file
	large   bool           // the text is too long to be held
	again   int64          // bytes of whole files, read besides growing

	parts  []*record.Part
	report record.Report
}

func newFollowed(t *task) *followed {
	if t.folder {
		return &followed{tail: runs.NewTail(t.path)}
	}
	return &followed{growing: runs.NewGrowing(t.path)}
}

func (f *followed) bytes() int64 {
	if f.tail != nil {
		return f.tail.BytesRead()
	}
	return f.growing.BytesRead() + f.again
}

// refresh reads what was appended. It returns only errors of the context.
func (f *followed) refresh(ctx context.Context, t *task, hold bool) (changed bool, err error) {
	if t.report.Skipped != "" { // a link, or not a file
		f.report = t.report
		return false, nil
	}
	if f.tail != nil {
		return f.refreshFolder(t), nil
	}
	a, err := f.growing.Open()
	if a == nil && err == nil {
		return false, nil
	}
	if err == nil {
		err = errors.Join(f.readAppended(ctx, t, a, hold), a.Close())
	}
	if err != nil && ctx.Err() == nil {
		was := f.report.Problems()
		f.parts, f.kind, f.events, f.text, f.report = nil, nil, nil, nil, record.Report{Path: t.path}
		f.report.Problem(0, "%v", err)
		return !slices.Equal(was, f.report.Problems()), nil
	}
	return true, ctx.Err()
}

// refreshFolder reads what was appended to the files of a run folder.
func (f *followed) refreshFolder(t *task) (changed bool) {
	changed, err := f.tail.Read()
	if err != nil {
		was := f.report.Problems()
		f.parts, f.report = nil, record.Report{Path: t.path, Kind: runFolder}
		f.report.Problem(0, "%v", err)
		return !slices.Equal(was, f.report.Problems())
	}
	if changed || f.parts == nil {
		run := f.tail.Run()
		f.report = record.Report{Path: t.path, Kind: runFolder, Runs: 1, Records: int64(len(run.Epochs)), Unused: run.Problems}
		f.parts = []*record.Part{{Run: run, Role: record.RunFolder}}
	}
	return changed
}

// readAppended reads what was appended to a file.
func (f *followed) readAppended(ctx context.Context, t *task, a *runs.Appended, hold bool) (err error) {
	if a.Anew {
		f.kind, f.events, f.text, f.parts, f.large = nil, nil, nil, nil, false
	}
	switch {
	case f.large:
		return f.readWhole(ctx, t, a)
	case f.events != nil || f.kind != nil:
		return f.readMore(ctx, t, a, hold)
	case a.Anew:
		return f.detect(ctx, t, a, hold)
	}
	// The file grew, and before that it was of no known kind, or a document.
	f.again += f.growing.BytesRead()
	f.growing = runs.NewGrowing(t.path)
	anew, err := f.growing.Open()
	if err != nil {
		return err
	}
	return errors.Join(f.detect(ctx, t, anew, hold), anew.Close())
}

// detect reads a file whose format is not known yet.
func (f *followed) detect(ctx context.Context, t *task, a *runs.Appended, hold bool) error {
	head := make([]byte, headBytes)
	n, err := io.ReadFull(a, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	head = head[:n]
	known := formats()
	i := slices.IndexFunc(known, func(k record.Format) bool { return k.Recognizes(t.path, head) })
	switch {
	case i < 0, plaintext.Encoding(head) != "", refusal(head) != "", known[max(i, 0)].Document:
		return f.readWhole(ctx, t, a)
	case known[i].Name == events.Kind:
		f.events = events.NewReader()
		f.events.Write(head)
	default:
		f.kind, f.text = &known[i], head
	}
	return f.readMore(ctx, t, a, hold)
}

// readWhole reads the file from its beginning, as Read does.
func (f *followed) readWhole(ctx context.Context, t *task, a *runs.Appended) error {
	a.Skip()
	f.kind, f.events, f.text = nil, nil, nil
	one := &task{path: t.path, named: t.named, size: t.size, report: record.Report{Path: t.path}}
	parts, err := readTask(ctx, one)
	f.parts, f.report = parts, one.report
	f.again += one.report.Bytes
	return err
}

// readMore reads what was appended to a file whose format is known.
func (f *followed) readMore(ctx context.Context, t *task, a *runs.Appended, hold bool) error {
	f.report = record.Report{Path: t.path}
	if f.events != nil {
		f.report.Kind = events.Kind
		buf := make([]byte, events.ChunkBytes)
		for {
			n, err := a.Read(buf)
			f.events.Write(buf[:n])
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
		}
		f.events.Report(&f.report, false)
		f.report.Bytes, f.report.Runs = f.growing.BytesRead(), 1
		f.parts = []*record.Part{{Role: record.Companion, Source: f.events, Run: runs.Run{Kind: events.Kind, Dir: t.path, File: t.path}}}
		return nil
	}
	room := int64(maxHeldText - len(f.text))
	more, err := io.ReadAll(io.LimitReader(a, room+1))
	if err != nil {
		return err
	}
	if int64(len(more)) > room || !hold {
		f.large = true
		return f.readWhole(ctx, t, a)
	}
	f.text = append(f.text, more...)
	return f.parse(ctx, t)
}

// parse reads the text that is held, up to its last whole line.
func (f *followed) parse(ctx context.Context, t *task) error {
	text := f.text[:bytes.LastIndexByte(f.text, '\n')+1]
	f.parts, f.report = nil, record.Report{Path: t.path, Kind: f.kind.Name, Bytes: int64(len(text))}
	if len(text) == 0 {
		f.report.Skipped = "the file has no whole line yet"
		return nil
	}
	in := &record.Input{Path: t.path, Reader: bytes.NewReader(text), Size: int64(len(text)), Report: &f.report}
	parts, err := f.kind.Read(ctx, in)
	if errors.Is(err, record.ErrUnknown) { // the lines that show the format may come later
		f.report = record.Report{Path: t.path, Skipped: unknownKind(f.text)}
		return nil
	}
	for _, p := range parts {
		p.Run.Kind = choose(p.Run.Kind, f.kind.Name, p.Run.Kind == "")
		p.Run.Dir = choose(p.Run.Dir, t.path, p.Run.Dir == "")
		p.Run.File = choose(p.Run.File, t.path, p.Run.File == "")
	}
	f.parts, f.report.Runs = parts, len(parts)
	return err
}

// copyParts returns copies of the parts and the report, which a merger may change.
func (f *followed) copyParts() ([]*record.Part, *record.Report) {
	report := f.report
	report.Ignored, report.Unused, report.Assumed = slices.Clone(report.Ignored), slices.Clip(report.Unused), slices.Clip(report.Assumed)
	var parts []*record.Part
	for _, p := range f.parts {
		c := *p
		c.Report = &report
		c.Run.Epochs, c.Run.Curves = slices.Clone(c.Run.Epochs), slices.Clone(c.Run.Curves)
		c.Run.Trials, c.Run.Spans = slices.Clip(c.Run.Trials), slices.Clip(c.Run.Spans)
		c.Run.Problems, c.Run.Workers = slices.Clip(c.Run.Problems), slices.Clip(c.Run.Workers)
		c.Run.Info.Config, c.Run.Info.JobIDs = maps.Clone(c.Run.Info.Config), maps.Clone(c.Run.Info.JobIDs)
		parts = append(parts, &c)
	}
	return parts, &report
}
