package textlog

import (
	"math"
	"slices"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// Lines that a template of a format or of the user describes. The user's templates are tried first:
//
//	Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec
//
// templatevalues.go defines what the values mean.

type templateRule struct {
	template *template.Template
	id       int // number of the template among the templates of the format index or of the user
	format   logline.FormatID
	user     bool // the user has given the template
	numbered bool // the format has a template with the number of the epoch; false if the user has given the template
	// Indexes of fields, -1 if the template does not have the field.
	epoch, step, rank, steps int
	values                   []valueField // the fields with values of an epoch or a step
	properties               []valueField // the fields with properties of the run
}

type valueField struct {
	index int // in the template's fields
	name  string
	curve []byte // name, as that of a curve
	kind  fields.Kind
	of    func(*runs.Epoch) *float64 // nil if the value belongs to no epoch, or is the number of samples
	bit   uint64                     // identifies the field among all fields of epochs
}

func (x *valueField) isTime() bool {
	return x.kind == fields.Seconds || x.name == fields.SamplesPerSecond
}

func (x *valueField) isEpochField() bool { return x.of != nil || x.name == fields.Samples }

func (x *valueField) isSetIn(e *runs.Epoch) bool {
	if x.of == nil {
		return x.name == fields.Samples && e.Samples > 0
	}
	return *x.of(e) == *x.of(e)
}

func newTemplateRule(t *template.Template, id int, format logline.FormatID) *templateRule {
	r := &templateRule{
		template: t, id: id, format: format, user: format == logline.UserTemplates,
		epoch: t.FieldIndex(fields.Epoch), step: t.FieldIndex(fields.Step), rank: t.FieldIndex(fields.Rank), steps: t.FieldIndex(fields.Steps),
	}
	for i, f := range t.Fields() {
		x := valueField{index: i, name: f.Name, curve: []byte(f.Name), kind: f.Kind}
		switch f.Name {
		case fields.Epoch, fields.Step, fields.Rank:
		case fields.Workers, fields.Nodes, fields.Seed, fields.Series, fields.Model, fields.Batch, fields.Epochs, fields.Steps:
			r.properties = append(r.properties, x)
		default:
			if known := slices.IndexFunc(fields.All(), func(k fields.Field) bool { return k.Name == f.Name && k.InTemplates }); known >= 0 {
				x.of, x.bit = fields.All()[known].OfEpoch, 1<<known
			}
			r.values = append(r.values, x)
		}
	}
	return r
}

func (r *templateRule) lineRule() logline.Rule {
	return logline.Rule{Prefix: r.template.Prefix(), Read: r.readLine, EndsWithValue: r.template.EndsWithNumber()}
}

// readLine reads line m by the template. It returns Unknown if the template does not match.
func (r *templateRule) readLine(log *logline.Log, m []byte) logline.Result {
	values := log.ValueBuffer(r.template)
	if !r.template.Match(m, values) {
		return logline.Unknown
	}
	if r.user {
		log.In.Report.Templates[r.id].Lines++
	}
	if !log.Lines.Ended && logline.IsTornLine(m, values) {
		return log.Refuse("last line is torn: %.80q", m)
	}
	return readTemplateValues(log, r, m, values)
}

// readUserTemplates reads line m by the first of the user's templates that matches. It returns
// Unknown if none does.
func (t *reader) readUserTemplates(m []byte) logline.Result {
	for i, r := range t.user {
		if v := r.readLine(t.Log, m); v != logline.Unknown {
			t.rememberShadowedTemplates(t.user[i+1:], m)
			return v
		}
	}
	return logline.Unknown
}

// rememberShadowedTemplates remembers line m in the report for each rule that also matches the line but has
// matched none before.
func (t *reader) rememberShadowedTemplates(rules []*templateRule, m []byte) {
	for _, r := range rules {
		use := &t.In.Report.Templates[r.id]
		if use.Lines > 0 || use.Shadowed || t.compared >= maxComparedLines {
			continue
		}
		t.compared++
		if r.template.Match(m, make([]template.Value, len(r.template.Fields()))) {
			use.Shadowed = true
			t.setNearest(use, m, template.Mismatch{Matched: math.MaxInt})
		}
	}
}

// readUserLine reads a line with the user's templates. If none matches message, the line without labels,
// it tries the complete line, whose beginning may only look like a label: "3: loss 0.5" may be epoch 3.
func (t *reader) readUserLine(line, message []byte) logline.Result {
	if message = scan.SkipBlanks(message); len(message) == 0 {
		return logline.Unknown
	}
	v := t.readUserTemplates(message)
	if line = scan.SkipBlanks(line); v == logline.Unknown && len(line) > len(message) {
		rank := t.Rank
		t.Rank = -1
		if v = t.readUserTemplates(line); v == logline.Unknown {
			t.Rank = rank
		}
	}
	if v == logline.Unknown {
		t.rememberNearestLine(message)
	}
	return v
}

// maxComparedLines limits the lines of a file that are compared with a template that matches none.
const maxComparedLines = 10_000

// rememberNearestLine remembers line m in the report for each template that has matched no line, if m
// is nearer to it than earlier lines.
func (t *reader) rememberNearestLine(m []byte) {
	if t.compared++; t.compared > maxComparedLines {
		return
	}
	for _, r := range t.user {
		use := &t.In.Report.Templates[r.id]
		if use.Lines > 0 {
			continue
		}
		if d := r.template.FindMismatch(m); use.NearestLine == 0 || d.Matched > use.Nearest.Matched {
			t.setNearest(use, m, d)
		}
	}
}

func (t *reader) setNearest(use *record.TemplateUse, m []byte, d template.Mismatch) {
	use.Nearest, use.NearestLine, use.NearestText = d, t.Lines.Number, string(m[:min(len(m), record.MaxNearestText)])
}
