// Package jsonlog reads logs in JSON: files with one object per line, as MMEngine, MMCV,
// Detectron2 and many scripts write them, and the summary of a W&B run.
//
// A member of an object that is a number becomes a point of the curve with the member's
// name, at the object's step, or at its epoch if the object has no step. Package
// fields has the names that also set a value of the epoch.
package jsonlog

import (
	"bytes"
	"context"
	"math"
	"path/filepath"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// The kinds of runs in files with one object per line.
const (
	linesKind      = "JSON lines"
	mmengineKind   = "MMEngine scalars"
	mmcvKind       = "MMCV log"
	detectron2Kind = "Detectron2 metrics"
)

// Formats returns the formats in the order in which they are tried.
func Formats() []record.Format {
	return []record.Format{
		{Name: summaryKind, Recognizes: isJSONFileNamed("wandb-summary.json"), Read: readWandbSummary, Document: true},
		{Name: metadataKind, Recognizes: isJSONFileNamed("wandb-metadata.json"), Read: readWandbMetadata, Document: true},
		{Name: linesKind, Recognizes: isJSONLines, Read: readJSONLines},
	}
}

// maxSettingsLines is the number of lines before the first values that may describe the run.
const maxSettingsLines = 8

const maxHeadBytes = 4096

// isJSONLines reports whether the lines of head are JSON objects, one of which has a step or an
// epoch and another number, or whether head begins with MMCV's description of the machine.
func isJSONLines(_ string, head []byte) bool {
	full := len(head) >= maxHeadBytes // the last line may be cut
	head = bytes.TrimLeft(head, " \t\r\n")
	if bytes.HasPrefix(head, []byte(`{"env_info": `)) {
		return true
	}
	found := false
	for range maxSettingsLines {
		line, rest, complete := bytes.Cut(head, []byte("\n"))
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '{' {
			return false
		}
		has, bad := hasStepValues(line)
		if bad && (complete || !full) && !found {
			return false
		}
		found = found || has && !bad
		if head = rest; len(head) == 0 {
			break
		}
	}
	return found
}

// hasStepValues reports whether a line has the number of a step or an epoch and another number.
// bad is set if it is not a complete object.
func hasStepValues(line []byte) (has, bad bool) {
	place, numbers := false, 0
	doc := scan.ObjectIterator{Text: line}
	for key, value := range doc.Members() {
		if string(key) == "log_history" { // the state of Hugging Face's trainer
			return false, true
		}
		if _, ok := scan.ParseJSONFloat(value); ok {
			if positionKindOf(string(key)) != notPosition {
				place = true
			} else {
				numbers++
			}
		}
	}
	return place && numbers > 0, doc.Bad && len(line) > 0
}

func readJSONLines(_ context.Context, in *record.Input) ([]*record.Part, error) {
	r := &reader{in: in, visData: filepath.Base(filepath.Dir(in.Path)) == "vis_data", settings: map[string]any{}, names: map[string]*jsonKey{}}
	err := in.ReadLines(func(l *scan.LineReader, line []byte) {
		if r.l = l; r.readObject(bytes.TrimSpace(line)) {
			in.Report.LinesUsed++
		}
	})
	if err != nil {
		return nil, err
	}
	return r.finish(), nil
}

// logObject is the parsed JSON object of one line.
type logObject struct {
	epoch, step, iter float64 // NaN if missing; iter is the step within an epoch
	mode              string  // train or val; empty if missing
	kind              string
	numbers           []numberMember
}

type numberMember struct {
	name  *jsonKey
	value float64
}

// positionKind states what a number means for the other numbers of its object: which step or epoch
// they belong to, for example.
type positionKind int

const (
	notPosition positionKind = iota
	epochPosition
	stepPosition // over the whole run
	iterPosition // MMCV: within the epoch; MMEngine: over the whole run, beside a step
)

func positionKindOf(key string) positionKind {
	f := fields.Lookup(key)
	switch {
	case f == nil:
	case f.Name == fields.Epoch:
		return epochPosition
	case key == "iter":
		return iterPosition
	case f.Name == fields.Step:
		return stepPosition
	}
	return notPosition
}

// jsonKey is a key of members. Each name remembers the next one, since objects usually list
// their members in the same order.
type jsonKey struct {
	text   string
	place  positionKind
	fields [2]*fields.Field // in an object of the training, and of the validation
	counts bool             // the value is the number of workers or nodes
	next   *jsonKey
	toNext []byte // text from the end of the value to the value of next

	run     *jsonRun         // the last run with the name, of which are:
	trained bool             // the training has values of the name
	curves  [2]*record.Curve // with the name, and with val/ before it
}

// maxKeyBytes is the length of the longest key that is used.
const maxKeyBytes = 100

func (r *reader) internKey(key []byte) *jsonKey {
	n := r.names[string(key)]
	if n == nil {
		text := string(key)
		f := fields.Lookup(text)
		n = &jsonKey{text: text, place: positionKindOf(text), fields: [2]*fields.Field{f, fields.LookupValidationField(text, fields.Lookup)}}
		n.counts = f != nil && (f.Name == fields.Workers || f.Name == fields.Nodes)
		r.hasCounts = r.hasCounts || n.counts
		if len(r.names) < record.MaxCurveNames && len(key) <= maxKeyBytes {
			r.names[text] = n
		}
	}
	return n
}

// nextKey moves to the value of the next member and returns the member's name, or nil. last is the
// name of the member before, or r.start.
func (r *reader) nextKey(doc *scan.ObjectIterator, last *jsonKey) *jsonKey {
	if last.next != nil && doc.SkipTo(last.toNext) {
		return last.next
	}
	from := doc.Offset()
	key, ok := doc.NextKey()
	if !ok {
		return nil
	}
	last.next, last.toNext = r.internKey(key), append(last.toNext[:0], doc.Text[from:doc.Offset()]...)
	return last.next
}

// parseObject parses a line. ok is false if it is not a complete object.
func (r *reader) parseObject(line []byte) (o logObject, ok bool) {
	o = logObject{epoch: math.NaN(), step: math.NaN(), iter: math.NaN(), numbers: r.numbers[:0]}
	doc := scan.ObjectIterator{Text: line}
	for n := r.nextKey(&doc, &r.start); n != nil; n = r.nextKey(&doc, n) {
		if n.text == "mode" {
			value, complete := doc.Value()
			if mode := scan.UnquoteJSON(value[:min(len(value), 10)]); string(mode) != r.mode {
				r.mode = string(mode)
			}
			if o.mode = r.mode; !complete {
				break
			}
			continue
		}
		var value []byte
		x, isNumber := doc.Number()
		if !isNumber {
			if value, ok = doc.Value(); !ok {
				break
			}
			x, isNumber = scan.ParseJSONFloat(value)
		}
		quoted := len(value) > 0 && value[0] == '"'
		if !isNumber && quoted && bytes.IndexByte(value, ':') > 0 { // such as "0:01:02"
			if f := n.fields[0]; f != nil && f.Kind == fields.Seconds {
				x, isNumber = scan.ParseDuration(scan.UnquoteJSON(value))
			}
		}
		switch {
		case n.place != notPosition && quoted: // a name
		case n.place != notPosition && isNumber:
			switch n.place {
			case epochPosition:
				o.epoch = x
			case stepPosition:
				if o.step != o.step {
					o.step = x
				}
				if n.text == "iteration" {
					o.kind = detectron2Kind
				}
			case iterPosition:
				o.iter = x
			}
		case isNumber && len(n.text) <= maxKeyBytes:
			o.numbers = append(o.numbers, numberMember{n, x})
		case len(r.runs) == 0 && len(value) > 0 && value[0] == '[' && fields.CountsWorkers(n.text):
			if count := record.CountDevices(string(value)); count > 0 {
				r.addSetting(n.text, float64(count))
			}
		case len(r.runs) == 0 && quoted && len(value) <= 1000:
			r.addSetting(n.text[:min(len(n.text), maxKeyBytes)], string(scan.UnquoteJSON(value)))
		case len(r.runs) == 0 && (string(value) == "true" || string(value) == "false"):
			r.addSetting(n.text[:min(len(n.text), maxKeyBytes)], string(value) == "true")
		}
	}
	r.numbers = o.numbers
	return o, !doc.Bad
}

// addSetting keeps a number, such as the seed, a text or a truth value that precedes the first values.
func (r *reader) addSetting(key string, v any) {
	if len(r.runs) == 0 && len(r.settings) < record.MaxRunSettings {
		r.settings[key] = v
	}
}

// readObject reads one line. It returns false if the line is not used.
func (r *reader) readObject(line []byte) bool {
	o, ok := r.parseObject(line)
	switch {
	case !ok && !r.l.Ended:
		r.in.AddProblem(r.l.Number, "last line is torn: %.80q", line)
		return false
	case !ok:
		r.in.AddProblem(r.l.Number, "expected a complete JSON object, got %.80q", line)
		return false
	case o.epoch != o.epoch && o.step != o.step && o.iter != o.iter:
		for _, m := range o.numbers {
			r.addSetting(m.name.text, m.value)
		}
		r.in.Report.AddIgnored(r.l.Number, "without a step or an epoch (settings)")
		return false
	}
	for _, v := range []float64{o.epoch, o.step, o.iter} {
		if v < 0 || v >= 1<<53 {
			r.in.AddProblem(r.l.Number, "expected the number of a step or an epoch, got %g", v)
			return false
		}
	}
	if len(o.numbers) == 0 {
		r.in.Report.AddIgnored(r.l.Number, "without numbers")
		return false
	}
	return r.addObject(o)
}
