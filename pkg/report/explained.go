package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"lockstep/pkg/scaling"
)

// explained is how a number came about: what it links to.
type explained struct {
	ID, Title, Formula, Substituted, Rule string
	Notes                                 []string
	Inputs                                []inputs
	MoreInputs                            int // not in Inputs
}

// inputs are numbers of one kind that stand in one file: the seconds of the
// epochs that count, say.
type inputs struct {
	Role, What, Values, Counted, Where string

	first   scaling.Input
	epochs  []int
	lines   []int
	numbers []string
}

// most is up to how many numbers are explained beside the headlines: each is a
// section of the page.
const most = 64

// explain is the anchor of a number's section, which it makes where there is
// none yet; empty where the number cannot be explained.
func (b *builder) explain(series, metric string, workers int) string {
	key := fmt.Sprintf("%q %s %d", series, metric, workers)
	if id, ok := b.explained[key]; ok {
		return id
	}
	b.explained[key] = ""
	e, err := b.study.ExplainSeries(series, metric, workers)
	if err != nil || len(e.Items) == 0 {
		return ""
	}
	x := e.Items[0]
	id := x.ID
	for n := 2; b.taken(id); n++ { // names that differ in what an anchor cannot hold
		id = fmt.Sprintf("%s-%d", x.ID, n)
	}
	b.explained[key] = id
	section := explained{
		ID: id, Title: fmt.Sprintf("%s of %s at %s: %s", words(metric), series, plural(workers, "worker"), x.Result),
		Formula: x.Formula, Substituted: x.Substituted, Rule: x.Rule, Inputs: b.inputs(x.Inputs),
	}
	if n := len(section.Inputs); n > mostInputs {
		section.Inputs, section.MoreInputs = section.Inputs[:mostInputs], n-mostInputs
	}
	for _, n := range x.Notes {
		section.Notes = append(section.Notes, b.shorter(n))
	}
	b.sections = append(b.sections, section)
	return id
}

func (b *builder) taken(id string) bool {
	for _, s := range b.sections {
		if s.ID == id {
			return true
		}
	}
	return false
}

// inputs puts those of a kind onto one row, with all their values and lines.
func (b *builder) inputs(all []scaling.Input) []inputs {
	var out []inputs
	at := map[string]int{}
	for _, in := range all {
		key := fmt.Sprintf("%q %q %q %q %v %q %v", in.Role, in.Run, in.File, in.Name, in.Counted, in.Why, in.Line > 0)
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, inputs{Role: in.Role, first: in})
		}
		row := &out[i]
		row.numbers = append(row.numbers, exact(in.Value))
		if in.Epoch > 0 {
			row.epochs = append(row.epochs, in.Epoch)
		}
		if in.Line > 0 {
			row.lines = append(row.lines, in.Line)
		}
	}
	for i := range out {
		out[i].finish(b)
	}
	return out
}

// finish writes the row's texts.
func (r *inputs) finish(b *builder) {
	in := r.first
	r.What = words(in.Name)
	switch len(r.epochs) {
	case 0:
	case 1:
		r.What = fmt.Sprintf("epoch %d: %s", r.epochs[0], r.What)
	default:
		r.What = fmt.Sprintf("epochs %s: %s", ranges(r.epochs), r.What)
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
	r.Where = b.shorter(in.File)
	if len(r.lines) > 0 {
		r.Where += ":" + ranges(r.lines)
	}
}

// exact is a number with all its digits.
func exact(v float64) string {
	if math.IsNaN(v) {
		return "not measured"
	}
	return strconv.FormatFloat(v, 'g', 10, 64)
}

// words is a column's name for people.
func words(column string) string {
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
