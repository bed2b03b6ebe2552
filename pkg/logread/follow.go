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

	// What is kept of the texts that were read, so that only what is appended
	// has to be read again: of one file, and of all. Event files and run
	// folders need no such copy.
	maxHeldText  = 16 << 20
	maxHeldTexts = 256 << 20
)

// Follower reads a live folder of logs. Each Next waits until something has
// changed and reads only what was appended: half a line at the end of a file
// waits for its rest, a file that was truncated or replaced is read anew, and
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
// It looks at the files' sizes and times now and then, since network file
// systems tell of no changes. Read anew as a whole when they change are files
// that are compressed, whole JSON documents, and texts that are longer than
// 16 MiB. A Follower is for one goroutine at a time.
type Follower struct {
	// Every is the time between two looks, at first a second.
	Every time.Duration

	ctx     context.Context // of the loop over Next, which takes none, as Scan of a bufio.Scanner
	options Options
	paths   []string
	files   map[string]*followed
	logs    *Logs
	began   bool
	read    int64
	err     error
}

// Follow follows what lies in and under the paths (where [runs.LocateLogs]
// finds them) until ctx ends.
func Follow(ctx context.Context, paths ...string) (*Follower, error) {
	return Options{}.Follow(ctx, paths...)
}

// Follow is the function Follow with options. Progress is not told.
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

// Next waits for a change and reads it. The first call returns at once. It is
// false when the context has ended, or after an error, which Err then tells.
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

// Runs are the runs as they were at the last Next, in natural order. The
// caller may keep them.
func (f *Follower) Runs() []runs.Run { return f.logs.Runs }

// Logs is all that was read, with problems and reports.
func (f *Follower) Logs() *Logs { return f.logs }

// Err is why Next ended; nil where the context did.
func (f *Follower) Err() error { return f.err }

// BytesRead is how many bytes of content were read so far, all in all.
func (f *Follower) BytesRead() int64 {
	n := f.read
	for _, file := range f.files {
		n += file.bytes()
	}
	return n
}

// look reads what changed in all paths.
func (f *Follower) look() (changed bool, err error) {
	lists := make([][]*task, len(f.paths))
	there := map[string]*task{}
	for i, path := range f.paths {
		lists[i], err = list(path)
		if err != nil && !(f.began && errors.Is(err, fs.ErrNotExist)) { // a folder that is moved comes back, or not
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

// refresh reads what was appended to the files, side by side.
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

// merged makes runs of what the files hold, as Options.Read does.
func (f *Follower) merged(lists [][]*task) *Logs {
	logs := &Logs{}
	for i, path := range f.paths {
		var parts []*record.Part
		var reports []*record.Report
		for _, t := range lists[i] {
			own, report := f.files[t.path].copied()
			parts, reports = append(parts, own...), append(reports, report)
		}
		m := &merger{options: f.options, root: path}
		found := m.merge(parts)
		for _, r := range reports {
			logs.Reports = append(logs.Reports, Report(*r))
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

// followed is a file, or a run folder of ours, and how far it was read.
type followed struct {
	tail    *runs.Tail     // of a run folder
	growing *runs.Growing  // of a file
	kind    *record.Format // of a text that is held; nil before
	text    []byte         // what was read of it
	events  *events.Reader // of an event file
	large   bool           // the text is too long to be held
	again   int64          // bytes that were read beside growing: of whole files

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

// refresh reads what was appended. An error is one of the context.
func (f *followed) refresh(ctx context.Context, t *task, hold bool) (changed bool, err error) {
	if t.report.Skipped != "" { // a link, or no file
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
		err = errors.Join(f.take(ctx, t, a, hold), a.Close())
	}
	if err != nil && ctx.Err() == nil {
		was := f.report.Problems()
		f.parts, f.kind, f.events, f.text, f.report = nil, nil, nil, nil, record.Report{Path: t.path}
		f.report.Problem(0, "%v", err)
		return !slices.Equal(was, f.report.Problems()), nil
	}
	return true, ctx.Err()
}

// refreshFolder reads what was appended to a run folder's files.
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

// take reads what was appended to a file.
func (f *followed) take(ctx context.Context, t *task, a *runs.Appended, hold bool) (err error) {
	if a.Anew {
		f.kind, f.events, f.text, f.parts, f.large = nil, nil, nil, nil, false
	}
	switch {
	case f.large:
		return f.whole(ctx, t, a)
	case f.events != nil || f.kind != nil:
		return f.more(ctx, t, a, hold)
	case a.Anew:
		return f.begin(ctx, t, a, hold)
	}
	// It grew, and what it was before was of no known kind, or a document.
	f.again += f.growing.BytesRead()
	f.growing = runs.NewGrowing(t.path)
	anew, err := f.growing.Open()
	if err != nil {
		return err
	}
	return errors.Join(f.begin(ctx, t, anew, hold), anew.Close())
}

// begin reads a file whose kind is not known yet.
func (f *followed) begin(ctx context.Context, t *task, a *runs.Appended, hold bool) error {
	head := make([]byte, headBytes)
	n, err := io.ReadFull(a, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	head = head[:n]
	known := formats()
	i := slices.IndexFunc(known, func(k record.Format) bool { return k.Recognizes(t.path, head) })
	switch {
	case i < 0, plaintext.Encoding(head) != "", never(head) != "", known[max(i, 0)].Document:
		return f.whole(ctx, t, a)
	case known[i].Name == events.Kind:
		f.events = events.NewReader()
		f.events.Write(head)
	default:
		f.kind, f.text = &known[i], head
	}
	return f.more(ctx, t, a, hold)
}

// whole reads the file from its beginning, as Read does.
func (f *followed) whole(ctx context.Context, t *task, a *runs.Appended) error {
	a.Skip()
	f.kind, f.events, f.text = nil, nil, nil
	one := &task{path: t.path, named: t.named, size: t.size, report: record.Report{Path: t.path}}
	parts, err := readTask(ctx, one)
	f.parts, f.report = parts, one.report
	f.again += one.report.Bytes
	return err
}

// more reads what was appended to a file whose kind is known.
func (f *followed) more(ctx context.Context, t *task, a *runs.Appended, hold bool) error {
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
		return f.whole(ctx, t, a)
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
	if errors.Is(err, record.ErrUnknown) { // so far: the lines that tell may come
		f.report = record.Report{Path: t.path, Skipped: unknownKind(f.text)}
		return nil
	}
	for _, p := range parts {
		p.Run.Kind = cmpString(p.Run.Kind, f.kind.Name, p.Run.Kind == "")
		p.Run.Dir = cmpString(p.Run.Dir, t.path, p.Run.Dir == "")
		p.Run.File = cmpString(p.Run.File, t.path, p.Run.File == "")
	}
	f.parts, f.report.Runs = parts, len(parts)
	return err
}

// copied are the parts and the report, for a merger to change.
func (f *followed) copied() ([]*record.Part, *record.Report) {
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
