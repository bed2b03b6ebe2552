package report

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling"
)

// explanation is a section of the page that shows how a number was derived. ID is the section's
// anchor.
type explanation struct {
	ID, Title, Formula, Substituted, Rule string
	Notes                                 []string
	Inputs                                []inputRow
	MoreInputs                            int // number of rows that are omitted from Inputs
}

// inputRow is a row in an explanation's table of inputs. It combines the numbers of one kind from
// one file, such as the seconds of all counted epochs.
type inputRow struct {
	Role, What, Values, Counted, Where string

	first   scaling.Input
	epochs  []int
	lines   []int
	numbers []string
}

// maxExplanations limits the number of explanations on a page. Once it is reached, only numbers in
// the headline table get one.
const maxExplanations = 64

// addExplanation adds the section that explains a metric of a series at a worker count, unless the
// page already has it. It returns the section's anchor, or "" if the metric cannot be explained.
func (b *pageBuilder) addExplanation(series, metric string, workers int) string {
	key := fmt.Sprintf("%q %s %d", series, metric, workers)
	if id, ok := b.anchors[key]; ok {
		return id
	}
	b.anchors[key] = ""
	e, err := b.study.ExplainSeries(series, metric, workers)
	if err != nil || len(e.Items) == 0 {
		return ""
	}
	x := e.Items[0]
	id := x.ID
	for n := 2; b.isIDUsed(id); n++ { // another name may have the same anchor, which omits some characters
		id = fmt.Sprintf("%s-%d", x.ID, n)
	}
	b.anchors[key] = id
	section := explanation{
		ID: id, Title: fmt.Sprintf("%s of %s at %s: %s", columnLabel(metric), series, english.FormatCount(workers, "worker"), x.Result),
		Formula: x.Formula, Substituted: x.Substituted, Rule: x.Rule, Inputs: b.groupInputs(x.Inputs),
	}
	if n := len(section.Inputs); n > maxInputs {
		section.Inputs, section.MoreInputs = section.Inputs[:maxInputs], n-maxInputs
	}
	for _, n := range x.Notes {
		section.Notes = append(section.Notes, b.shortenPaths(n))
	}
	b.sections = append(b.sections, section)
	return id
}

func (b *pageBuilder) isIDUsed(id string) bool {
	return slices.ContainsFunc(b.sections, func(s explanation) bool { return s.ID == id })
}

// groupInputs returns one row per kind of number and file.
func (b *pageBuilder) groupInputs(all []scaling.Input) []inputRow {
	var out []inputRow
	at := map[string]int{}
	for _, in := range all {
		key := fmt.Sprintf("%q %q %q %q %v %q %v", in.Role, in.Run, in.File, in.Name, in.Counted, in.Why, in.Line > 0)
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, inputRow{Role: in.Role, first: in})
		}
		row := &out[i]
		row.numbers = append(row.numbers, english.FormatTenDigits(in.Value))
		if in.Epoch > 0 {
			row.epochs = append(row.epochs, in.Epoch)
		}
		if in.Line > 0 {
			row.lines = append(row.lines, in.Line)
		}
	}
	for i := range out {
		out[i].formatCells(b)
	}
	return out
}

// formatCells sets the exported fields from the collected inputs in the unexported fields.
func (r *inputRow) formatCells(b *pageBuilder) {
	in := r.first
	r.What = columnLabel(in.Name)
	switch len(r.epochs) {
	case 0:
	case 1:
		r.What = fmt.Sprintf("epoch %d: %s", r.epochs[0], r.What)
	default:
		r.What = fmt.Sprintf("epochs %s: %s", formatIntRanges(r.epochs), r.What)
	}
	r.Values = strings.Join(r.numbers, "  ")
	if in.Unit != "" {
		r.Values += " " + in.Unit
	}
	r.Counted = "yes"
	if !in.Counted {
		r.Counted = "no"
	}
	if in.Why != "" {
		r.Counted += ": " + in.Why
	}
	r.Where = b.shortenPaths(in.File)
	if len(r.lines) > 0 {
		r.Where += ":" + formatIntRanges(r.lines)
	}
}

// columnLabel returns the label that the page shows for a column of the logs, such as "epoch time"
// for epoch_seconds.
func columnLabel(column string) string {
	switch column {
	case "iou":
		return "IoU"
	case "dice":
		return "Dice"
	case "speedup":
		return "speed-up"
	case "epoch_seconds":
		return "epoch time"
	case "val_loss":
		return "validation loss"
	case "val_accuracy":
		return "validation accuracy"
	case "train_loss":
		return "training loss"
	}
	return strings.ReplaceAll(column, "_", " ")
}
