package logread

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/content"
	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/rules"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/textlog"
	"lockstep/pkg/logread/internal/tidy"
	"lockstep/pkg/runs"
)

// Limits of the texts from which templates are suggested, so that a log of any size takes a moment.
const (
	sampleBytes  = 1 << 20  // at the beginning and at the end of a file
	sampleLines  = 5000     // of each
	sampledFiles = 64       // files of unknown form that are examined
	excerptBytes = 16 << 20 // at the beginning of each file, for the preview and for known formats
)

type sampledText struct {
	path    string
	lines   []textlog.Message
	columns []table.ColumnInfo    // if it is a table; otherwise nil
	head    []byte                // of a table: the first bytes
	mapped  []table.ColumnMapping // of a table: the mappings of the rules and options
	known   string                // kind of a table that is read, although columns may be unknown
}

// findUnknownTexts returns samples of the texts that no known format and no rule reads, and lists
// the other files in s.
func (o Options) findUnknownTexts(ctx context.Context, s *Suggestion, places []string) ([]sampledText, error) {
	lines, columns, err := o.parseRules()
	if err != nil {
		return nil, err
	}
	lists, err := files.List(places...)
	if err != nil {
		return nil, err
	}
	finder := &rules.Finder{}
	var texts []sampledText
	for i, place := range places {
		if err := files.SetRules(finder, lists[i], place, lines, columns); err != nil {
			return nil, err
		}
		for _, t := range lists[i] {
			t.ExcerptBytes = o.excerptBytes
			parts, err := files.Read(ctx, t)
			if err != nil {
				return nil, err
			}
			known := ""
			if slices.ContainsFunc(parts, hasMeasurements) {
				k := slices.IndexFunc(parts, func(p *record.Part) bool { return p.Run.Kind != "" })
				if known = t.Report.Kind; k >= 0 {
					known = parts[k].Run.Kind
				}
			}
			text, unreadable := sampledText{}, t.Report.Skipped
			switch {
			case known != "" && t.Report.Kind != table.GeneralTableKind:
				s.Known = append(s.Known, fmt.Sprintf("%s: %s", t.Path, known))
				continue
			case len(texts) == sampledFiles:
				s.addNote("only the first %d files of unknown form were examined", sampledFiles)
				return texts, nil
			case unreadable == "" || strings.HasPrefix(unreadable, files.ReasonUnknownFormat):
				unreadable = ""
				if text, err = sampleText(ctx, t); err != nil {
					unreadable = err.Error()
				} else if text.lines == nil {
					unreadable = "it is not a text"
				}
			}
			if unreadable != "" {
				s.Unknown = append(s.Unknown, fmt.Sprintf("%s: %s", t.Path, unreadable))
				continue
			}
			text.known = known
			texts = append(texts, text)
		}
	}
	return texts, nil
}

// hasMeasurements reports whether p has more than settings and wall times. Logs of unknown format have
// these too, if they contain the command of a job.
func hasMeasurements(p *record.Part) bool {
	if p.Role != record.Principal {
		return p.Role != record.Unfinished
	}
	return len(p.Run.Curves) > 0 || len(p.Run.Trials) > 0 || len(p.Run.Spans) > 0 || slices.ContainsFunc(p.Run.Epochs, func(e runs.Epoch) bool {
		return slices.ContainsFunc(tidy.EpochValues(e), func(v tidy.Value) bool { return !math.IsNaN(v.V) && v.V != 0 })
	})
}

// sampleText returns the first and last lines of a file. It has no lines if the file is not a text.
func sampleText(ctx context.Context, t *files.Task) (sample sampledText, err error) {
	sample.path = t.Path
	f, err := t.Open()
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	in, head, closeIt, err := content.Open(ctx, f, t.Size, &record.Report{Path: t.Path})
	if err != nil {
		return sample, err
	}
	defer closeIt()
	if bytes.IndexByte(head, 0) >= 0 {
		return sample, nil
	}
	first, err := io.ReadAll(io.LimitReader(in.Reader, sampleBytes))
	if err != nil {
		return sample, err
	}
	complete := int64(len(first)) == in.Size || len(first) < sampleBytes
	if !complete {
		first = first[:bytes.LastIndexByte(first, '\n')+1]
	}
	sample.columns, sample.head, sample.mapped = table.DescribeColumns(first, t.Columns), bytes.Clone(head), t.Columns
	messages := textlog.Messages(first)
	if len(messages) > sampleLines {
		messages, complete = messages[:sampleLines], false
	}
	if in.ReaderAt != nil && !complete {
		from := max(in.Size-sampleBytes, int64(len(first)))
		last, err := io.ReadAll(io.NewSectionReader(in.ReaderAt, from, in.Size-from))
		if err != nil {
			return sample, err
		}
		more := textlog.Messages(last[bytes.IndexByte(last, '\n')+1:])
		messages = append(messages, more[max(0, len(more)-sampleLines):]...)
	}
	sample.lines = append([]textlog.Message{}, messages...) // not nil: the file is a text
	return sample, nil
}
