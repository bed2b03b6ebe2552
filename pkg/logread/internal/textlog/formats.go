package textlog

import (
	"slices"
	"strings"
	"sync"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/logread/internal/textlog/internal/benchmark"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/logread/internal/textlog/internal/system"
	"lockstep/pkg/logread/internal/textlog/internal/trainer"
)

func formats() [logline.MaxFormats]logline.Format {
	return [logline.MaxFormats]logline.Format{
		logline.Command:     system.Command(),
		logline.Slurm:       system.Slurm(),
		logline.BashTime:    system.BashTime(),
		logline.GNUTime:     system.GNUTime(),
		logline.ZshTime:     system.ZshTime(),
		logline.Seff:        system.Seff(),
		logline.NCCLTests:   benchmark.NCCLTests(),
		logline.OSU:         benchmark.OSU(),
		logline.Torchrun:    system.Torchrun(),
		logline.OutOfMemory: system.OutOfMemory(),
		logline.Study:       trainer.Study(),
		logline.Rates:       trainer.Rates(),
		logline.Titan:       trainer.Titan(),
		logline.Horovod:     benchmark.Horovod(),
		logline.Benchy:      benchmark.Benchy(),
		logline.DLLogger:    benchmark.DLLogger(),
		logline.MLPerf:      benchmark.MLPerf(),
		logline.Keras:       trainer.Keras(),
		logline.SC21:        trainer.SC21(),
		logline.Tqdm:        trainer.Tqdm(),
		logline.Lightning:   trainer.Lightning(),
		logline.ImageNet:    trainer.ImageNet(),
		logline.Torchvision: trainer.Torchvision(),
		logline.Timm:        trainer.Timm(),
		logline.NNUNet:      trainer.NNUNet(),
		logline.TFCNN:       benchmark.TFCNN(),
		logline.NanoGPT:     trainer.NanoGPT(),
		logline.DeepSpeed:   trainer.DeepSpeed(),
		logline.Megatron:    trainer.Megatron(),
		logline.HuggingFace: trainer.HuggingFace(),
		// Lines that match a template of the user.
		logline.UserTemplates: {Name: "lines"},
	}
}

// FormatNames returns the names of the formats whose lines are recognized. It omits two formats
// that are read in addition to others: commands, and messages that memory ran out.
func FormatNames() []string {
	var names []string
	for id, f := range sharedFormatIndex().formats {
		if id := logline.FormatID(id); f.Name != "" && id != logline.Command && id != logline.OutOfMemory && id != logline.UserTemplates {
			names = append(names, f.Name)
		}
	}
	return names
}

type formatIndex struct {
	formats  [logline.MaxFormats]logline.Format
	byFirst  [256][]indexedRule                                // rules by the first byte of the line
	anywhere []func(log *logline.Log, m []byte) logline.Result // format.anywhere
	ends     []func(m []byte) bool                             // of formats
}

type indexedRule struct {
	logline.Rule
	format logline.FormatID
}

func (r *indexedRule) matches(m []byte) bool { return scan.HasPrefix(m, r.Prefix) }

// sharedFormatIndex builds the index of all formats once.
var sharedFormatIndex = sync.OnceValue(newFormatIndex)

func newFormatIndex() *formatIndex {
	x := formatIndex{formats: formats()}
	add := func(name int, r logline.Rule, first ...byte) {
		for _, c := range first {
			x.byFirst[c] = append(x.byFirst[c], indexedRule{r, logline.FormatID(name)})
		}
	}
	for name, f := range x.formats {
		for i := range f.Rules {
			r := &f.Rules[i]
			if r.Compile(); r.Prefix != "" {
				add(name, *r, r.Prefix[0])
			}
		}
	}
	id := 0
	for name, f := range x.formats {
		for _, text := range f.Templates {
			r := newFormatRule(f, text, id, logline.FormatID(name))
			add(name, r, r.Prefix[0])
			id++
		}
	}
	for name, f := range x.formats {
		for _, r := range f.Rules {
			add(name, r, []byte(r.First)...)
		}
	}
	for _, f := range x.formats {
		if f.Anywhere != nil {
			x.anywhere = append(x.anywhere, f.Anywhere)
		}
		if f.EndsWithValue != nil {
			x.ends = append(x.ends, f.EndsWithValue)
		}
	}
	return &x
}

// newFormatRule returns a rule for a template of format f. The template must begin with literal
// text.
func newFormatRule(f logline.Format, text string, id int, name logline.FormatID) logline.Rule {
	described := newTemplateRule(template.MustParse(text), id, name)
	described.numbered = slices.ContainsFunc(f.Templates, func(text string) bool { return strings.Contains(text, "{"+fields.Epoch+"}") })
	r := described.lineRule()
	if read := r.Read; f.Applies != nil {
		r.Read = func(log *logline.Log, m []byte) logline.Result {
			if !f.Applies(log) {
				return logline.Unknown
			}
			return read(log, m)
		}
	}
	return r
}

// applyRule reads line m by the first rule that matches its beginning and accepts the line. If
// there is none, it tries the formats that recognize lines with any beginning. It returns Unknown
// if no format reads the line.
func (x *formatIndex) applyRule(log *logline.Log, m []byte) logline.Result {
	rules := x.byFirst[m[0]]
	for i := range rules {
		if r := &rules[i]; r.matches(m) {
			if v := r.ReadLine(log, m); v != logline.Unknown {
				return v
			}
		}
	}
	for _, read := range x.anywhere {
		if v := read(log, m); v != logline.Unknown {
			return v
		}
	}
	return logline.Unknown
}

func (x *formatIndex) readBlockLine(log *logline.Log, m []byte) logline.Result {
	f := &x.formats[log.Block]
	if slices.ContainsFunc(f.NotInBlock, func(other logline.FormatID) bool { return x.hasPrefixOf(m, other) }) {
		return logline.Unknown
	}
	return f.ReadInBlock(log, m)
}

func (x *formatIndex) hasPrefixOf(m []byte, name logline.FormatID) bool {
	rules := x.byFirst[m[0]]
	for i := range rules {
		if r := &rules[i]; r.format == name && r.Prefix != "" && r.matches(m) {
			return true
		}
	}
	return false
}

// endsWithValue reports whether lines that begin like m end with a value.
func (x *formatIndex) endsWithValue(m []byte) bool {
	return slices.ContainsFunc(x.byFirst[m[0]], func(r indexedRule) bool { return r.EndsWithValue && r.matches(m) }) ||
		slices.ContainsFunc(x.ends, func(ends func(m []byte) bool) bool { return ends(m) })
}
