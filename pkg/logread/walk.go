package logread

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/logread/internal/content"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/runs"
)

// taskResult is the result of reading one task.
type taskResult struct {
	parts []*record.Part
	err   error
}

// readAll reads the tasks concurrently and returns their parts in the order of
// the tasks.
func readAll(ctx context.Context, tasks []*task, progress func(read, total int64)) ([]*record.Part, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make([]chan taskResult, len(tasks))
	for i := range results {
		results[i] = make(chan taskResult, 1)
	}
	next := make(chan int)
	var total, read int64
	for _, t := range tasks {
		total += t.size
	}
	processors := runtime.GOMAXPROCS(0)
	for _, t := range tasks {
		t.goroutines = processors / len(tasks)
	}
	if len(tasks) == 1 { // no other goroutine is needed
		parts, err := readTask(ctx, tasks[0])
		if progress != nil && err == nil {
			progress(total, total)
		}
		return parts, err
	}
	for range min(processors, len(tasks)) {
		go func() {
			for i := range next {
				parts, err := readTask(ctx, tasks[i])
				results[i] <- taskResult{parts, err}
			}
		}()
	}
	go func() {
		defer close(next)
		for i := range tasks {
			select {
			case next <- i:
			case <-ctx.Done():
				results[i] <- taskResult{err: ctx.Err()}
			}
		}
	}()
	var all []*record.Part
	var first error
	for i, t := range tasks { // wait for every task, so that no goroutine outlives this call
		d := <-results[i]
		if d.err != nil && first == nil {
			first = d.err
			cancel()
		}
		all = append(all, d.parts...)
		if read += t.size; progress != nil && first == nil {
			progress(read, total)
		}
	}
	return all, first
}

// readTask reads a run folder or a file. It returns only errors of the context;
// other errors become problems in the report.
func readTask(ctx context.Context, t *task) ([]*record.Part, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case t.report.Skipped != "":
		return nil, nil
	case t.folder:
		run, err := runs.Read(t.path)
		t.report.Kind = runFolderKind
		if err != nil {
			t.report.AddProblem(0, "%v", err)
			return nil, nil
		}
		t.report.Runs, t.report.Records = 1, int64(len(run.Epochs))
		t.report.Unused = append(t.report.Unused, run.Problems...)
		return []*record.Part{{Run: run, Role: record.RunFolder, Report: &t.report}}, nil
	}
	parts, err := readFile(ctx, t)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		t.report.AddProblem(0, "%v", err)
	}
	return parts, nil
}

// runFolderKind is the kind of this project's run folders in reports.
const runFolderKind = "run folder"

// open opens the file of the task.
func (t *task) open() (*os.File, error) {
	switch {
	case t.named:
		return os.Open(t.path)
	case t.link:
		return safeopen.OpenUserFile(t.path)
	}
	return safeopen.Open(filepath.Dir(t.path), t.path)
}

// readFile reads a file with the first format that recognizes it.
func readFile(ctx context.Context, t *task) (parts []*record.Part, err error) {
	f, err := t.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	in, head, closeIt, err := content.Open(ctx, f, t.size, &t.report)
	if err != nil {
		return nil, err
	}
	defer closeIt()
	in.Goroutines, in.Lines = t.goroutines, t.lines
	if t.excerptBytes > 0 {
		in.Reader, in.ReaderAt, in.Size = io.LimitReader(in.Reader, t.excerptBytes), nil, min(in.Size, t.excerptBytes)
	}
	if why := content.RefusalReason(head); why != "" {
		t.report.Skipped = why
		return nil, nil
	}
	for _, k := range formats(t.columns) {
		if !k.Recognizes(t.path, head) {
			continue
		}
		t.report.Kind = k.Name
		parts, err = k.Read(ctx, in)
		if errors.Is(err, record.ErrUnknownFormat) {
			break
		}
		for i, p := range parts {
			p.Report = &t.report
			dir := t.path
			if i > 0 { // a file may have several runs
				dir += "#" + strconv.Itoa(i+1)
			}
			p.Run.Kind, p.Run.Dir, p.Run.File = cmp.Or(p.Run.Kind, k.Name), cmp.Or(p.Run.Dir, dir), cmp.Or(p.Run.File, t.path)
		}
		for _, p := range parts {
			if p.Role != record.Config {
				t.report.Runs++
			}
		}
		return parts, err
	}
	t.report.Kind = ""
	t.report.Skipped, t.report.Header = unknownFormatReason(head), table.Header(head)
	return nil, nil
}

// unknownFormatReason returns the reason for not reading a file whose format is
// unknown.
func unknownFormatReason(head []byte) string {
	if len(head) == 0 {
		return "the file is empty"
	}
	if columns := table.DescribeUnknown(head); columns != "" {
		return reasonUnknownFormat + ": a table with " + columns + ", none of which shows what its rows are; map them with --columns, such as --columns 'epoch=NAME,train_loss=NAME', or see lockstep read FILE --suggest"
	}
	return reasonUnknownFormat
}

// reasonUnknownFormat is the reason for not reading a file that no format
// recognizes.
const reasonUnknownFormat = "unknown file format"
