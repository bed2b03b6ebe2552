package logread

import (
	"bytes"
	"cmp"
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
	"lockstep/pkg/logread/internal/content"
	"lockstep/pkg/logread/internal/events"
	"lockstep/pkg/logread/internal/merge"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/runs"
)

const (
	followEvery = time.Second

	// Limits of the texts that stay in memory, so that only appended text has
	// to be read: per file, and for all files together. Event files and run
	// folders need no copy.
	maxKeptText  = 16 << 20
	maxKeptTexts = 256 << 20
)

// Follower reads a folder of logs while it grows. Each call of Next waits for a
// change and reads only what was appended. An incomplete line at the end of a
// file is read once it is complete. A file that was truncated or replaced is
// read again. New files and folders are found.
//
//	f, err := logread.Follow(ctx, "logs/demo")
//	if err != nil {
//		return err
//	}
//	for f.Next() { // returns at once the first time, then after each change
//		fmt.Println(len(f.Runs()), "runs")
//	}
//	return f.Err()
//
// A Follower polls the sizes and modification times of the files, since network
// file systems do not report changes. Compressed files, JSON documents and
// texts longer than 16 MiB are read again from the beginning when they change.
// A Follower must not be used by several goroutines at the same time.
type Follower struct {
	// Every is the time between two polls, by default one second.
	Every time.Duration

	ctx            context.Context // of the loop over Next, which has no context argument
	options        Options
	lines          []*template.Template // of options.Lines
	columns        []table.Mapping      // of options.Columns
	paths          []string
	files          map[string]*followedFile
	logs           *Logs
	started        bool            // Next was called
	bytesOfRemoved int64           // bytes read of files that no longer exist
	otherProgram   map[string]bool // see lister
	rules          rulesFinder     // keeps the last valid rules
	rulesProblem   error           // of the last poll
	err            error
}

// Follow returns a Follower of the logs in and below the paths, which
// [runs.LocateLogs] resolves. Its Next returns false once ctx is done.
func Follow(ctx context.Context, paths ...string) (*Follower, error) {
	return Options{}.Follow(ctx, paths...)
}

// Follow is like the function Follow, with options. Options.Progress is not
// called.
func (o Options) Follow(ctx context.Context, paths ...string) (*Follower, error) {
	if len(paths) == 0 {
		return nil, errors.New("follow logs: no path given; name a folder of logs such as logs/demo")
	}
	lines, err := o.parseLines()
	if err != nil {
		return nil, fmt.Errorf("follow logs: %w", err)
	}
	columns, err := table.ParseMappings(o.Columns)
	if err != nil {
		return nil, fmt.Errorf("follow logs: %w", err)
	}
	f := &Follower{Every: followEvery, ctx: ctx, options: o, lines: lines, columns: columns, files: map[string]*followedFile{}, logs: &Logs{}, otherProgram: map[string]bool{}}
	for _, path := range paths {
		place, err := runs.LocateLogs(path)
		if err != nil {
			return nil, fmt.Errorf("follow logs: %w", err)
		}
		f.paths = append(f.paths, place)
	}
	return f, nil
}

// Next waits for a change and reads it. The first call does not wait. Next
// returns false once the context is done or after an error, which Err returns.
func (f *Follower) Next() bool {
	for f.err == nil {
		if f.started && !f.waitForPoll() || f.ctx.Err() != nil {
			return false
		}
		changed, err := f.poll()
		switch {
		case f.ctx.Err() != nil:
			return false
		case err != nil:
			f.err = fmt.Errorf("follow logs: %w", err)
		case changed || !f.started:
			f.started = true
			return true
		}
	}
	return false
}

// waitForPoll waits until the next poll is due. It returns false if the context
// is done.
func (f *Follower) waitForPoll() bool {
	t := time.NewTimer(max(f.Every, time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// Runs returns the runs that the last call of Next found, in natural order. A
// later call of Next does not change the returned slice.
func (f *Follower) Runs() []runs.Run { return f.logs.Runs }

// Logs returns everything that was read, including problems and reports.
func (f *Follower) Logs() *Logs { return f.logs }

// Err returns the error that ended the loop over Next. It is nil if the context
// was canceled.
func (f *Follower) Err() error { return f.err }

// BytesRead returns the total number of bytes read so far, after decompression.
func (f *Follower) BytesRead() int64 {
	n := f.bytesOfRemoved
	for _, file := range f.files {
		n += file.bytesRead()
	}
	return n
}

// poll looks for new, removed and changed files in all paths and reads the
// changes.
func (f *Follower) poll() (changed bool, err error) {
	l := newLister(f.otherProgram)
	for _, path := range f.paths {
		if err := l.add(path); err != nil && !(f.started && errors.Is(err, fs.ErrNotExist)) { // a folder may be missing temporarily
			return false, err
		}
	}
	lists := l.finish()
	found := map[string]*task{}
	changed, err = f.findRules(lists)
	if err != nil {
		return false, err
	}
	for _, t := range slices.Concat(lists...) {
		found[t.path] = t
	}
	for path, file := range f.files {
		if t := found[path]; t == nil || t.folder != (file.tail != nil) || t.rules != file.rules {
			f.bytesOfRemoved += file.bytesRead()
			delete(f.files, path)
			changed = true
		}
	}
	kept := 0
	for path, t := range found {
		if f.files[path] == nil {
			f.files[path] = newFollowedFile(t)
			changed = true
		}
		kept += len(f.files[path].text)
	}
	grown, err := f.refreshFiles(found, kept < maxKeptTexts)
	if err != nil || !grown && !changed {
		return false, err
	}
	f.logs = f.mergeParts(lists)
	return true, nil
}

// findRules sets the rules of the tasks and reports whether they have become
// invalid, or valid again. While rules are invalid, the last valid ones apply.
func (f *Follower) findRules(lists [][]*task) (changed bool, err error) {
	f.rules.startAgain()
	for i, path := range f.paths {
		if err = f.rules.setRules(lists[i], path, f.lines, f.columns); err != nil {
			break
		}
	}
	if err != nil && !f.started {
		return false, err
	}
	changed = fmt.Sprint(err) != fmt.Sprint(f.rulesProblem)
	if f.rulesProblem = err; err == nil {
		return changed, nil
	}
	for _, t := range slices.Concat(lists...) {
		t.lines, t.columns, t.rules = f.lines, f.columns, nil
		if file := f.files[t.path]; file != nil {
			t.setRules(file.rules)
		}
	}
	return changed, nil
}

// refreshFiles reads what was appended to the files, using one goroutine per
// processor. If keepText is false, files that need a copy of their text in
// memory are read from the beginning instead.
func (f *Follower) refreshFiles(tasks map[string]*task, keepText bool) (changed bool, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan *task)
	for range min(runtime.GOMAXPROCS(0), len(tasks)) {
		wg.Go(func() {
			for t := range next {
				grown, failed := f.files[t.path].refresh(f.ctx, t, keepText)
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

// mergeParts merges the parts of all files into runs, as Options.Read does.
func (f *Follower) mergeParts(lists [][]*task) *Logs {
	logs := &Logs{Problems: findMisspelledFields(f.lines)}
	if f.rulesProblem != nil {
		logs.Problems = append(logs.Problems, runs.Problem{Reason: f.rulesProblem.Error()})
	}
	for i, path := range f.paths {
		var parts []*record.Part
		var reports []*record.Report
		for _, t := range lists[i] {
			fileParts, report := f.files[t.path].copyParts()
			parts, reports = append(parts, fileParts...), append(reports, report)
		}
		found := merge.Merge(parts, path, f.options.patternsFor(lists[i]))
		for _, r := range reports {
			logs.Reports = append(logs.Reports, newReport(r))
			logs.Problems = append(logs.Problems, r.Problems()...)
		}
		for _, run := range found {
			if !slices.ContainsFunc(logs.Runs, func(r runs.Run) bool { return r.Dir == run.Dir }) {
				logs.Runs = append(logs.Runs, run)
			}
		}
	}
	logs.separateSeries()
	return logs
}

// followedFile is the state of one followed file or run folder: the parts read
// so far and the position up to which it was read.
type followedFile struct {
	tail        *runs.Tail        // reads a run folder; nil for a file
	growing     *runs.GrowingFile // reads a file; nil for a run folder
	kind        *record.Format    // format of text; nil until known
	text        []byte            // content read so far, if the format needs it from the beginning
	events      *events.Parser    // parses an event file; nil for other files
	large       bool              // the text is too long to be kept in memory
	rules       *parsedRules      // that apply to the file
	bytesReread int64             // bytes that were read again from the beginning, not through growing

	parts  []*record.Part
	report record.Report
}

// newFollowedFile returns the state of a run folder or file of which nothing
// was read yet.
func newFollowedFile(t *task) *followedFile {
	if t.folder {
		return &followedFile{tail: runs.NewTail(t.path)}
	}
	return &followedFile{growing: runs.NewGrowingFile(t.path), rules: t.rules}
}

// bytesRead returns the number of bytes that were read of the file or run
// folder.
func (f *followedFile) bytesRead() int64 {
	if f.tail != nil {
		return f.tail.BytesRead()
	}
	return f.growing.BytesRead() + f.bytesReread
}

// refresh reads what was appended and reports whether the run or the report
// changed. It returns only errors of the context; other errors become problems
// in the report.
func (f *followedFile) refresh(ctx context.Context, t *task, keepText bool) (changed bool, err error) {
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
		err = errors.Join(f.readAppended(ctx, t, a, keepText), a.Close())
	}
	if err != nil && ctx.Err() == nil {
		was := f.report.Problems()
		f.parts, f.kind, f.events, f.text, f.report = nil, nil, nil, nil, record.Report{Path: t.path}
		f.report.AddProblem(0, "%v", err)
		return !slices.Equal(was, f.report.Problems()), nil
	}
	return true, ctx.Err()
}

// refreshFolder reads what was appended to the files of a run folder and
// reports whether the run or the report changed.
func (f *followedFile) refreshFolder(t *task) (changed bool) {
	changed, err := f.tail.Read()
	if err != nil {
		was := f.report.Problems()
		f.parts, f.report = nil, record.Report{Path: t.path, Kind: runFolderKind}
		f.report.AddProblem(0, "%v", err)
		return !slices.Equal(was, f.report.Problems())
	}
	if changed || f.parts == nil {
		run := f.tail.Run()
		f.report = record.Report{Path: t.path, Kind: runFolderKind, Runs: 1, Records: int64(len(run.Epochs)), Unused: run.Problems}
		f.parts = []*record.Part{{Run: run, Role: record.RunFolder}}
	}
	return changed
}

// readAppended reads what was appended to a file. It reads the file from the
// beginning if it was replaced, is too large to keep in memory, or has no known
// format yet.
func (f *followedFile) readAppended(ctx context.Context, t *task, a *runs.AppendedReader, keepText bool) (err error) {
	if a.Restarted {
		f.kind, f.events, f.text, f.parts, f.large = nil, nil, nil, nil, false
	}
	switch {
	case f.large:
		return f.readFromStart(ctx, t, a)
	case f.events != nil || f.kind != nil:
		return f.readNewContent(ctx, t, a, keepText)
	case a.Restarted:
		return f.detectAndRead(ctx, t, a, keepText)
	}
	// The file grew, and before that its format was unknown, or it is a
	// document.
	f.bytesReread += f.growing.BytesRead()
	f.growing = runs.NewGrowingFile(t.path)
	reopened, err := f.growing.Open()
	if err != nil {
		return err
	}
	return errors.Join(f.detectAndRead(ctx, t, reopened, keepText), reopened.Close())
}

// detectAndRead detects the format of a file from its first bytes and reads the
// file in this format.
func (f *followedFile) detectAndRead(ctx context.Context, t *task, a *runs.AppendedReader, keepText bool) error {
	head := make([]byte, content.MaxHeadBytes)
	n, err := io.ReadFull(a, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	head = head[:n]
	known := formats(t.columns)
	i := slices.IndexFunc(known, func(k record.Format) bool { return k.Recognizes(t.path, head) })
	switch {
	case i < 0, plaintext.DetectEncoding(head) != "", content.RefusalReason(head) != "", known[max(i, 0)].Document:
		return f.readFromStart(ctx, t, a)
	case known[i].Name == events.Kind:
		f.events = events.NewParser()
		f.events.Write(head)
	default:
		f.kind, f.text = &known[i], head
	}
	return f.readNewContent(ctx, t, a, keepText)
}

// readFromStart reads the file from the beginning, as Read does.
func (f *followedFile) readFromStart(ctx context.Context, t *task, a *runs.AppendedReader) error {
	a.Skip()
	f.kind, f.events, f.text = nil, nil, nil
	one := &task{path: t.path, named: t.named, size: t.size, lines: t.lines, columns: t.columns, report: record.Report{Path: t.path}}
	parts, err := readTask(ctx, one)
	f.parts, f.report = parts, one.report
	f.bytesReread += one.report.Bytes
	return err
}

// readNewContent reads what was appended to a file whose format is known.
func (f *followedFile) readNewContent(ctx context.Context, t *task, a *runs.AppendedReader, keepText bool) error {
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
		f.events.AddToReport(&f.report, false)
		f.report.Bytes, f.report.Runs = f.growing.BytesRead(), 1
		f.parts = []*record.Part{{Role: record.Companion, Source: f.events, Run: runs.Run{Kind: events.Kind, Dir: t.path, File: t.path}}}
		return nil
	}
	left := int64(maxKeptText - len(f.text))
	more, err := io.ReadAll(io.LimitReader(a, left+1))
	if err != nil {
		return err
	}
	if int64(len(more)) > left || !keepText {
		f.large = true
		return f.readFromStart(ctx, t, a)
	}
	f.text = append(f.text, more...)
	return f.parseText(ctx, t)
}

// parseText parses the text in memory up to its last complete line.
func (f *followedFile) parseText(ctx context.Context, t *task) error {
	text := f.text[:bytes.LastIndexByte(f.text, '\n')+1]
	f.parts, f.report = nil, record.Report{Path: t.path, Kind: f.kind.Name, Bytes: int64(len(text))}
	if len(text) == 0 {
		f.report.Skipped = "the file has no complete line yet"
		return nil
	}
	in := &record.Input{Path: t.path, Reader: bytes.NewReader(text), Size: int64(len(text)), Report: &f.report, Lines: t.lines}
	parts, err := f.kind.Read(ctx, in)
	if errors.Is(err, record.ErrUnknownFormat) { // the lines that show the format may come later
		f.report = record.Report{Path: t.path, Skipped: unknownFormatReason(f.text)}
		return nil
	}
	for _, p := range parts {
		p.Run.Kind = cmp.Or(p.Run.Kind, f.kind.Name)
		p.Run.Dir = cmp.Or(p.Run.Dir, t.path)
		p.Run.File = cmp.Or(p.Run.File, t.path)
	}
	f.parts, f.report.Runs = parts, len(parts)
	return err
}

// copyParts returns copies of the parts and of the report, since merging
// modifies them.
func (f *followedFile) copyParts() ([]*record.Part, *record.Report) {
	report := f.report
	if f.rules != nil {
		report.Rules = f.rules.path
	}
	report.Ignored, report.Unused, report.Assumed = slices.Clone(report.Ignored), slices.Clip(report.Unused), slices.Clip(report.Assumed)
	var parts []*record.Part
	for _, p := range f.parts {
		c := *p
		c.Report, c.Claims = &report, slices.Clip(c.Claims)
		c.Run.Epochs, c.Run.Curves = slices.Clone(c.Run.Epochs), slices.Clone(c.Run.Curves)
		c.Run.Trials, c.Run.Spans, c.Run.AllReduces = slices.Clip(c.Run.Trials), slices.Clip(c.Run.Spans), slices.Clip(c.Run.AllReduces)
		c.Run.Problems, c.Run.Workers = slices.Clip(c.Run.Problems), slices.Clip(c.Run.Workers)
		c.Run.Info.Config, c.Run.Info.JobIDs = maps.Clone(c.Run.Info.Config), maps.Clone(c.Run.Info.JobIDs)
		parts = append(parts, &c)
	}
	return parts, &report
}
