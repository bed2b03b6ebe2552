package textlog

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/template"
)

// formats returns all formats. To add a format, add one entry here and a file
// with its functions.
func formats() [maxFormats]format {
	return [maxFormats]format{
		formatCommand:     Command(),
		formatSlurm:       Slurm(),
		formatBash:        BashTime(),
		formatGNUTime:     GNUTime(),
		formatZshTime:     ZshTime(),
		formatSeff:        Seff(),
		formatNCCL:        NCCLTests(),
		formatOSU:         OSU(),
		formatFailure:     Torchrun(),
		formatMemory:      OutOfMemory(),
		formatStudy:       Study(),
		formatRates:       Rates(),
		formatTitan:       Titan(),
		formatHorovod:     Horovod(),
		formatBenchy:      Benchy(),
		formatDLL:         DLLogger(),
		formatMLPerf:      MLPerf(),
		formatKeras:       Keras(),
		formatSC21:        sc21Format(),
		formatTqdm:        Tqdm(),
		formatLightning:   Lightning(),
		formatImageNet:    ImageNet(),
		formatTorchvision: Torchvision(),
		formatTimm:        Timm(),
		formatNNUNet:      NNUNet(),
		formatTFCNN:       TFCNN(),
		formatNanoGPT:     NanoGPT(),
		formatDeepSpeed:   DeepSpeed(),
		formatMegatron:    Megatron(),
		formatHuggingFace: HuggingFace(),
		// Lines that match a template of the user.
		formatLines: {name: "lines"},
	}
}

// FormatNames returns the names of the formats whose lines are recognized. Commands and messages
// that memory ran out are read beside lines of other formats, so they are not listed.
func FormatNames() []string {
	var names []string
	for id, f := range sharedFormatIndex().formats {
		if id := formatID(id); f.name != "" && id != formatCommand && id != formatMemory && id != formatLines {
			names = append(names, f.name)
		}
	}
	return names
}

// formatName returns the name of a format.
func formatName(f formatID) string { return sharedFormatIndex().formats[f].name }

// formatIndex contains what is known about the lines of all formats.
type formatIndex struct {
	formats  [maxFormats]format
	byFirst  [256][]indexedRule                      // rules by the first byte of the line
	anywhere []func(t *textLog, m []byte) lineResult // format.anywhere
	ends     []func(m []byte) bool                   // format.endsWithValue
}

// indexedRule is a rule with the first bytes of its prefix as a word, for fast
// comparison.
type indexedRule struct {
	lineRule
	word, mask uint64
	format     formatID
}

// newIndexedRule returns rule r of a format with up to 8 bytes of its prefix in a machine word,
// and the mask of these bytes.
func newIndexedRule(name formatID, r lineRule) indexedRule {
	x := indexedRule{lineRule: r, format: name}
	x.compile()
	for i := range min(len(r.prefix), 8) {
		x.word |= uint64(r.prefix[i]) << (8 * i)
		x.mask |= 0xff << (8 * i)
	}
	return x
}

// matches reports whether m begins with the prefix of the rule.
func (r *indexedRule) matches(m []byte) bool {
	w := m[:cap(m)]
	if len(w) < 8 {
		return scan.HasPrefix(m, r.prefix)
	}
	if (binary.LittleEndian.Uint64(w)^r.word)&r.mask != 0 || len(m) < len(r.prefix) {
		return false
	}
	return len(r.prefix) <= 8 || string(m[8:len(r.prefix)]) == r.prefix[8:]
}

// sharedFormatIndex returns the index of all formats, which is built only once.
var sharedFormatIndex = sync.OnceValue(newFormatIndex)

// newFormatIndex builds the index of all formats.
func newFormatIndex() *formatIndex {
	x := formatIndex{formats: formats()}
	for name, f := range x.formats {
		for _, r := range f.lines {
			if r.prefix != "" {
				x.byFirst[r.prefix[0]] = append(x.byFirst[r.prefix[0]], newIndexedRule(formatID(name), r))
			}
		}
	}
	x.addTemplates()
	for name, f := range x.formats {
		for _, r := range f.lines {
			for _, c := range []byte(r.first) {
				x.byFirst[c] = append(x.byFirst[c], newIndexedRule(formatID(name), r))
			}
		}
	}
	for _, f := range x.formats {
		if f.anywhere != nil {
			x.anywhere = append(x.anywhere, f.anywhere)
		}
		if f.endsWithValue != nil {
			x.ends = append(x.ends, f.endsWithValue)
		}
	}
	return &x
}

// addTemplates adds the templates of all formats.
func (x *formatIndex) addTemplates() {
	id := 0
	for name, f := range x.formats {
		for _, text := range f.templates {
			described := newTemplateRule(template.MustParse(text), id, formatID(name))
			described.numbered = slices.ContainsFunc(f.templates, func(text string) bool { return strings.Contains(text, "{"+template.Epoch+"}") })
			r := described.lineRule()
			id++
			if read := r.read; f.applies != nil {
				r.read = func(t *textLog, m []byte) lineResult {
					if !f.applies(t) {
						return unknown
					}
					return read(t, m)
				}
			}
			if r.prefix != "" {
				x.byFirst[r.prefix[0]] = append(x.byFirst[r.prefix[0]], newIndexedRule(formatID(name), r))
				continue
			}
			for c := range x.byFirst {
				x.byFirst[c] = append(x.byFirst[c], newIndexedRule(formatID(name), r))
			}
		}
	}
}

// applyRule applies the first rule with the beginning of line m that can read it,
// or else the first format whose lines have any beginning. It returns unknown if
// none can.
func (x *formatIndex) applyRule(t *reader, m []byte) lineResult {
	rules := x.byFirst[m[0]]
	for i := range rules {
		if r := &rules[i]; r.matches(m) {
			if v := r.readLine(t.textLog, m); v != unknown {
				if v == used {
					t.last = r
				}
				return v
			}
		}
	}
	for _, read := range x.anywhere {
		if v := read(t.textLog, m); v != unknown {
			return v
		}
	}
	return unknown
}

// readBlockLine reads line m inside a block.
func (x *formatIndex) readBlockLine(t *textLog, m []byte) lineResult {
	f := &x.formats[t.block]
	for _, other := range f.notInBlock {
		if x.hasPrefixOf(m, other) {
			return unknown
		}
	}
	return f.readInBlock(t, m)
}

// hasPrefixOf reports whether line m begins with a prefix of the given format.
func (x *formatIndex) hasPrefixOf(m []byte, name formatID) bool {
	rules := x.byFirst[m[0]]
	for i := range rules {
		if r := &rules[i]; r.format == name && r.prefix != "" && r.matches(m) {
			return true
		}
	}
	return false
}

// endsWithValue reports whether a line ends with a value, judging by its
// beginning.
func (x *formatIndex) endsWithValue(m []byte) bool {
	for _, r := range x.byFirst[m[0]] {
		if r.endsWithValue && r.matches(m) {
			return true
		}
	}
	return slices.ContainsFunc(x.ends, func(ends func(m []byte) bool) bool { return ends(m) })
}
