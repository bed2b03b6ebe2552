package logread

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/identity"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/rules"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/runs"
)

const (
	followEvery = time.Second

	// maxKeptTexts limits the texts of all files that stay in memory, in bytes, so
	// that only appended text has to be read.
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
	lines          []*template.Template  // of options.Lines
	columns        []table.ColumnMapping // of options.Columns
	paths          []string
	files          map[string]*files.FollowedTask
	logs           *Logs
	started        bool            // Next was called
	bytesOfRemoved int64           // bytes read of files that no longer exist
	otherProgram   map[string]bool // see files.Lister
	rules          rules.Finder    // keeps the last valid rules
	rulesProblem   error           // of the last poll
	err            error
}

// Follow returns a Follower of the logs in and below the paths, which
// [runs.LocateLogs] resolves. Its Next returns false once ctx is done.
func Follow(ctx context.Context, paths ...string) (*Follower, error) {
	return Options{}.Follow(ctx, paths...)
}

// Follow is like the function [Follow], with the options of o. It never calls o.Progress.
func (o Options) Follow(ctx context.Context, paths ...string) (*Follower, error) {
	if len(paths) == 0 {
		return nil, errors.New("follow logs: no path given; name a folder of logs such as logs/demo")
	}
	lines, columns, err := o.parseRules()
	if err != nil {
		return nil, fmt.Errorf("follow logs: %w", err)
	}
	f := &Follower{Every: followEvery, ctx: ctx, options: o, lines: lines, columns: columns, files: map[string]*files.FollowedTask{}, logs: &Logs{}, otherProgram: map[string]bool{}}
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
// returns false once the context is done or after an error; see Err.
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

// waitForPoll returns false if the context is done.
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
		n += file.BytesRead()
	}
	return n
}

// poll reads new, changed and removed files of all paths.
func (f *Follower) poll() (changed bool, err error) {
	l := files.NewLister(f.otherProgram)
	for _, path := range f.paths {
		if err := l.Add(path); err != nil && !(f.started && errors.Is(err, fs.ErrNotExist)) { // a folder may be missing temporarily
			return false, err
		}
	}
	lists := l.Finish()
	found := map[string]*files.Task{}
	changed, err = f.updateRules(lists)
	if err != nil {
		return false, err
	}
	for _, t := range slices.Concat(lists...) {
		found[t.Path] = t
	}
	for path, file := range f.files {
		if t := found[path]; t == nil || !file.Follows(t) {
			f.bytesOfRemoved += file.BytesRead()
			delete(f.files, path)
			changed = true
		}
	}
	kept := 0
	for path, t := range found {
		if f.files[path] == nil {
			f.files[path] = files.NewFollowedTask(t)
			changed = true
		}
		kept += f.files[path].KeptBytes()
	}
	grown, err := f.refreshFiles(found, kept < maxKeptTexts)
	if err != nil || !grown && !changed {
		return false, err
	}
	f.logs = f.buildLogs(lists)
	return true, nil
}

// updateRules finds the rules for each task in lists. changed is true if the rules have become
// invalid, or valid again. While a rules file is invalid, its last valid rules apply.
func (f *Follower) updateRules(lists [][]*files.Task) (changed bool, err error) {
	f.rules.Invalidate()
	for i, path := range f.paths {
		if err = files.SetRules(&f.rules, lists[i], path, f.lines, f.columns); err != nil {
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
		t.Lines, t.Columns, t.Rules = f.lines, f.columns, nil
		if file := f.files[t.Path]; file != nil {
			t.SetRules(file.Rules)
		}
	}
	return changed, nil
}

// refreshFiles reads what was appended to the files. If keepText is false, files
// that need a copy of their text in memory are read from the beginning instead.
func (f *Follower) refreshFiles(tasks map[string]*files.Task, keepText bool) (changed bool, err error) {
	var mu sync.Mutex
	files.ForEachParallel(slices.Collect(maps.Values(tasks)), func(_ int, t *files.Task) {
		grown, failed := f.files[t.Path].Refresh(f.ctx, t, keepText)
		mu.Lock()
		defer mu.Unlock()
		changed, err = changed || grown, errors.Join(err, failed)
	})
	return changed, err
}

func (f *Follower) buildLogs(lists [][]*files.Task) *Logs {
	logs := &Logs{Problems: findMisspelledFields(f.lines)}
	if f.rulesProblem != nil {
		logs.Problems = append(logs.Problems, runs.Problem{Reason: f.rulesProblem.Error()})
	}
	for i, path := range f.paths {
		var parts []*record.Part
		var reports []*record.Report
		for _, t := range lists[i] {
			fileParts, report := f.files[t.Path].CopyParts()
			parts, reports = append(parts, fileParts...), append(reports, report)
		}
		decider := identity.Resolver{Root: path, Patterns: f.options.patternsFor(lists[i])}
		logs.addRunsAndReports(decider.IdentifyRuns(parts), reports)
	}
	logs.separateSeries()
	return logs
}
