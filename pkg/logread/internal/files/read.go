// Package files lists the files and run folders in and below paths, and reads each of them with
// the first format that recognizes it.
//
// A [Lister] finds them; links are followed once. [SetRules] adds the rules that a user keeps
// beside the logs. [ReadAll] reads the tasks concurrently, and [Followed] reads again and again
// what was appended to a file that grows. formats.go lists the formats.
package files

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/logread/internal/content"
	"lockstep/pkg/logread/internal/events"
	"lockstep/pkg/logread/internal/ipynb"
	"lockstep/pkg/logread/internal/jsonlog"
	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/programfile"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/textlog"
	"lockstep/pkg/logread/internal/trace"
	"lockstep/pkg/runs"
)

// ReadAll reads the tasks concurrently and returns their parts in order.
func ReadAll(ctx context.Context, tasks []*Task, progress func(read, total int64)) ([]*record.Part, error) {
	var total, read int64
	for _, t := range tasks {
		total += t.Size
	}
	parts := make([][]*record.Part, len(tasks))
	var mu sync.Mutex // of read and progress
	ForEachParallel(tasks, func(i int, t *Task) {
		var err error
		parts[i], err = Read(ctx, t)
		mu.Lock()
		defer mu.Unlock()
		if read += t.Size; progress != nil && err == nil {
			progress(read, total)
		}
	})
	return slices.Concat(parts...), ctx.Err()
}

// ForEachParallel calls use for all tasks on all processors, and returns after all calls.
func ForEachParallel(tasks []*Task, use func(i int, t *Task)) {
	var all sync.WaitGroup
	processors := make(chan bool, runtime.GOMAXPROCS(0))
	for i, t := range tasks {
		processors <- true
		all.Go(func() {
			use(i, t)
			<-processors
		})
	}
	all.Wait()
}

// Read reads the runs of one task. It returns an error only if the context is done; other errors
// become problems in the report.
func Read(ctx context.Context, t *Task) ([]*record.Part, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case t.Report.Skipped != "":
		return nil, nil
	case t.Folder:
		run, err := runs.Read(t.Path)
		t.Report.Kind = RunFolderKind
		if err != nil {
			t.Report.AddProblem(0, "%v", err)
			return nil, nil
		}
		t.Report.Runs, t.Report.Records = 1, int64(len(run.Epochs))
		t.Report.Unused = append(t.Report.Unused, run.Problems...)
		return []*record.Part{{Run: run, Role: record.RunFolder, Report: &t.Report}}, nil
	}
	parts, err := readFile(ctx, t)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		t.Report.AddProblem(0, "%v", err)
	}
	return parts, nil
}

// RunFolderKind is the name in reports for run folders that Lockstep wrote.
const RunFolderKind = "run folder"

// Open opens the file of the task.
func (t *Task) Open() (*os.File, error) {
	switch {
	case t.named:
		return os.Open(t.Path)
	case t.link:
		return safeopen.OpenUserFile(t.Path)
	}
	return safeopen.Open(filepath.Dir(t.Path), t.Path)
}

func readFile(ctx context.Context, t *Task) (parts []*record.Part, err error) {
	f, err := t.Open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	in, head, closeIt, err := content.Open(ctx, f, t.Size, &t.Report)
	if err != nil {
		return nil, err
	}
	defer closeIt()
	in.Lines = t.Lines
	if t.ExcerptBytes > 0 {
		in.Reader, in.ReaderAt, in.Size = io.LimitReader(in.Reader, t.ExcerptBytes), nil, min(in.Size, t.ExcerptBytes)
	}
	if why := content.RefusalReason(head); why != "" {
		t.Report.Skipped = why
		return nil, nil
	}
	if !t.named && programfile.IsTidyCSV(head) {
		t.Report.Skipped = "it has rows of lockstep read, whose runs are read from their own logs; name the file to read it"
		return nil, nil
	}
	for _, k := range Formats(t.Columns) {
		if !k.Recognizes(t.Path, head) {
			continue
		}
		t.Report.Kind = k.Name
		parts, err = k.Read(ctx, in)
		if errors.Is(err, record.ErrUnknownFormat) {
			break
		}
		finishParts(parts, t.Path, k.Name, &t.Report, head)
		return parts, err
	}
	t.Report.Kind = ""
	t.Report.Skipped, t.Report.Header = unknownFormatReason(head), table.HeaderNames(head)
	return nil, nil
}

// finishParts completes the report and the parts that were read from the file at path in the format
// kind. head is the beginning of the file. If all parts are commands without values, the file is
// reported as one of unknown format, since its commands belong to the run of another file.
func finishParts(parts []*record.Part, path, kind string, report *record.Report, head []byte) {
	unfinished := len(parts) > 0
	for i, p := range parts {
		p.Report = report
		record.AddStepTimes(&p.Run, report)
		dir := path
		if i > 0 { // a file may have several runs
			dir += "#" + strconv.Itoa(i+1)
		}
		p.Run.Kind, p.Run.Dir, p.Run.File = cmp.Or(p.Run.Kind, kind), cmp.Or(p.Run.Dir, dir), cmp.Or(p.Run.File, path)
		if unfinished = unfinished && p.Role == record.Unfinished; p.Role != record.Config && p.Role != record.Unfinished {
			report.Runs++
		}
	}
	if unfinished {
		report.Kind, report.Skipped = "", unknownFormatReason(head)
	}
}

func unknownFormatReason(head []byte) string {
	if len(head) == 0 {
		return "the file is empty"
	}
	if columns := table.DescribeUnknownTable(head); columns != "" {
		return ReasonUnknownFormat + ": a table with " + columns + ", none of which shows what its rows are; map them with --columns, such as --columns 'epoch=NAME,train_loss=NAME', or see lockstep read FILE --suggest"
	}
	return ReasonUnknownFormat
}

// ReasonUnknownFormat is the reason for not reading a file that no format recognizes.
const ReasonUnknownFormat = "unknown file format"

// Formats returns the formats of other programs' logs in the order in which they are tried.
func Formats(columns []table.ColumnMapping) []record.Format {
	return slices.Concat([]record.Format{events.Format(), ipynb.Format(notebookOutputFormats(columns)), trace.Format(), launchline.Format()}, jsonlog.Formats(), table.MappedFormats(columns), programfile.Formats(), table.DocumentFormats(columns), []record.Format{table.Format(columns), textlog.Format()})
}

// notebookOutputFormats returns the formats of a notebook cell's output: tables with a header, and lines.
func notebookOutputFormats(columns []table.ColumnMapping) []record.Format {
	isOther := func(f record.Format) bool { return f.Document || f.Name == programfile.PlainKind }
	return slices.Concat(table.MappedFormats(columns), slices.DeleteFunc(programfile.Formats(), isOther), []record.Format{table.Format(columns), textlog.Format()})
}
