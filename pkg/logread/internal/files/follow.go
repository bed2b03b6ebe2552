package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"lockstep/pkg/internal/plaintext"
	"lockstep/pkg/logread/internal/content"
	"lockstep/pkg/logread/internal/events"
	"lockstep/pkg/logread/internal/programfile"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/rules"
	"lockstep/pkg/runs"
)

// MaxKeptTextBytes limits the text of a file that stays in memory, in bytes, so that only appended
// text has to be read. Event files and run folders need no copy.
const MaxKeptTextBytes = 16 << 20

// FollowedTask is a followed file or run folder: the parts read so far and the position up to which
// it was read.
type FollowedTask struct {
	Rules *rules.Rules // that apply to the file

	tail        *runs.Tail        // reads a run folder; nil for a file
	growing     *runs.GrowingFile // reads a file; nil for a run folder
	kind        *record.Format    // format of text; nil until known
	text        []byte            // content read so far, if the format needs it from the beginning
	events      *events.Parser    // parses an event file; nil for other files
	large       bool              // the text is too long to be kept in memory
	bytesReread int64             // bytes that were read again from the beginning, not through growing

	parts  []*record.Part
	report record.Report
}

// NewFollowedTask returns a FollowedTask for t from which nothing has been read yet.
func NewFollowedTask(t *Task) *FollowedTask {
	if t.Folder {
		return &FollowedTask{tail: runs.NewTail(t.Path)}
	}
	return &FollowedTask{growing: runs.NewGrowingFile(t.Path), Rules: t.Rules}
}

// Follows reports whether f can go on reading t: both are run folders or both are files, and the
// rules are the same.
func (f *FollowedTask) Follows(t *Task) bool {
	return t.Folder == (f.tail != nil) && t.Rules == f.Rules
}

// KeptBytes returns the length of the text in memory.
func (f *FollowedTask) KeptBytes() int { return len(f.text) }

// BytesRead returns the number of bytes read of the file or run folder.
func (f *FollowedTask) BytesRead() int64 {
	if f.tail != nil {
		return f.tail.BytesRead()
	}
	return f.growing.BytesRead() + f.bytesReread
}

// Refresh reads what was appended and reports whether the run or the report changed. It
// returns only errors of the context; others become problems in the report.
func (f *FollowedTask) Refresh(ctx context.Context, t *Task, keepText bool) (changed bool, err error) {
	if t.Report.Skipped != "" { // a link, or not a file
		f.report = t.Report
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
		f.parts, f.kind, f.events, f.text, f.report = nil, nil, nil, nil, record.Report{Path: t.Path}
		f.report.AddProblem(0, "%v", err)
		return !slices.Equal(was, f.report.Problems()), nil
	}
	return true, ctx.Err()
}

func (f *FollowedTask) refreshFolder(t *Task) (changed bool) {
	changed, err := f.tail.Read()
	if err != nil {
		was := f.report.Problems()
		f.parts, f.report = nil, record.Report{Path: t.Path, Kind: RunFolderKind}
		f.report.AddProblem(0, "%v", err)
		return !slices.Equal(was, f.report.Problems())
	}
	if changed || f.parts == nil {
		run := f.tail.Run()
		f.report = record.Report{Path: t.Path, Kind: RunFolderKind, Runs: 1, Records: int64(len(run.Epochs)), Unused: run.Problems}
		f.parts = []*record.Part{{Run: run, Role: record.RunFolder}}
	}
	return changed
}

// readAppended reads what was appended to a file. It reads the whole file again if it was
// replaced, is too large to keep in memory, or has no known format yet.
func (f *FollowedTask) readAppended(ctx context.Context, t *Task, a *runs.AppendedReader, keepText bool) (err error) {
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
	// The file grew, and is a document or had an unknown format before.
	f.bytesReread += f.growing.BytesRead()
	f.growing = runs.NewGrowingFile(t.Path)
	reopened, err := f.growing.Open()
	if err != nil {
		return err
	}
	return errors.Join(f.detectAndRead(ctx, t, reopened, keepText), reopened.Close())
}

func (f *FollowedTask) detectAndRead(ctx context.Context, t *Task, a *runs.AppendedReader, keepText bool) error {
	head := make([]byte, content.MaxHeadBytes)
	n, err := io.ReadFull(a, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	head = head[:n]
	known := Formats(t.Columns)
	i := slices.IndexFunc(known, func(k record.Format) bool { return k.Recognizes(t.Path, head) })
	switch {
	case i < 0, plaintext.DetectEncoding(head) != "", content.RefusalReason(head) != "", !t.named && programfile.IsTidyCSV(head), known[max(i, 0)].Document:
		return f.readFromStart(ctx, t, a)
	case known[i].Name == events.Kind:
		f.events = events.NewParser()
		if err := f.events.Read(bytes.NewReader(head)); err != nil {
			return err
		}
	default:
		f.kind, f.text = &known[i], head
	}
	return f.readNewContent(ctx, t, a, keepText)
}

func (f *FollowedTask) readFromStart(ctx context.Context, t *Task, a *runs.AppendedReader) error {
	a.Skip()
	f.kind, f.events, f.text = nil, nil, nil
	one := &Task{Path: t.Path, named: t.named, Size: t.Size, Lines: t.Lines, Columns: t.Columns, Report: record.Report{Path: t.Path}}
	parts, err := Read(ctx, one)
	f.parts, f.report = parts, one.Report
	f.bytesReread += one.Report.Bytes
	return err
}

// readNewContent reads what was appended to a file whose format is known.
func (f *FollowedTask) readNewContent(ctx context.Context, t *Task, a *runs.AppendedReader, keepText bool) error {
	f.report = record.Report{Path: t.Path}
	if f.events != nil {
		f.report.Kind = events.Kind
		if err := f.events.Read(a); err != nil {
			return err
		}
		f.events.AddToReport(&f.report, false)
		f.report.Bytes, f.report.Runs = f.growing.BytesRead(), 1
		f.parts = []*record.Part{{Role: record.Companion, Source: f.events, Run: runs.Run{Kind: events.Kind, Dir: t.Path, File: t.Path}}}
		return nil
	}
	left := int64(MaxKeptTextBytes - len(f.text))
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
func (f *FollowedTask) parseText(ctx context.Context, t *Task) error {
	text := f.text[:bytes.LastIndexByte(f.text, '\n')+1]
	f.parts, f.report = nil, record.Report{Path: t.Path, Kind: f.kind.Name, Bytes: int64(len(text))}
	if len(text) == 0 {
		f.report.Skipped = "the file has no complete line yet"
		return nil
	}
	in := &record.Input{Path: t.Path, Reader: bytes.NewReader(text), Size: int64(len(text)), Report: &f.report, Lines: t.Lines}
	parts, err := f.kind.Read(ctx, in)
	if errors.Is(err, record.ErrUnknownFormat) { // the lines that show the format may come later
		f.report = record.Report{Path: t.Path, Skipped: unknownFormatReason(f.text)}
		return nil
	}
	f.parts = parts
	finishParts(parts, t.Path, f.kind.Name, &f.report, f.text)
	return err
}

// CopyParts returns copies of the parts and the report, since merging modifies them.
func (f *FollowedTask) CopyParts() ([]*record.Part, *record.Report) {
	report := f.report
	if f.Rules != nil {
		report.Rules = f.Rules.Path
	}
	report.Ignored, report.Unused, report.Assumed = slices.Clone(report.Ignored), slices.Clip(report.Unused), slices.Clip(report.Assumed)
	var parts []*record.Part
	for _, p := range f.parts {
		c := *p
		c.Report, c.Evidence = &report, slices.Clone(c.Evidence)
		c.Run.Epochs, c.Run.Curves = slices.Clone(c.Run.Epochs), slices.Clone(c.Run.Curves)
		c.Run.Trials, c.Run.Spans, c.Run.AllReduces = slices.Clip(c.Run.Trials), slices.Clip(c.Run.Spans), slices.Clip(c.Run.AllReduces)
		c.Run.Problems, c.Run.Workers = slices.Clip(c.Run.Problems), slices.Clip(c.Run.Workers)
		c.Run.Info.Config, c.Run.Info.JobIDs = maps.Clone(c.Run.Info.Config), maps.Clone(c.Run.Info.JobIDs)
		parts = append(parts, &c)
	}
	return parts, &report
}
