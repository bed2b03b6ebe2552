package logread

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

// plan states how the files of a round are made: each element becomes a folder. The numbers are
// seeds, so that a plan from which a mutation was removed leaves the others as they are.
type plan []mutatedPlan

// mutatedPlan is a sample and the seeds of its mutations.
type mutatedPlan struct {
	sample    int
	mutations []uint64
}

// newPlan returns one to three samples, each with one to three mutations.
func newPlan(rng *rand.Rand, samples int) plan {
	var p plan
	for range 1 + rng.IntN(3) {
		m := mutatedPlan{sample: rng.IntN(samples)}
		for range 1 + rng.IntN(3) {
			m.mutations = append(m.mutations, rng.Uint64())
		}
		p = append(p, m)
	}
	return p
}

// smaller returns the plans that lack one sample or one mutation of p.
func (p plan) smaller() (all []plan) {
	for i := range p {
		if len(p) > 1 {
			all = append(all, slices.Delete(slices.Clone(p), i, i+1))
		}
		for k := range p[i].mutations {
			q := slices.Clone(p)
			q[i].mutations = slices.Delete(slices.Clone(p[i].mutations), k, k+1)
			all = append(all, q)
		}
	}
	return all
}

// mutant is a sample whose files were mutated.
type mutant struct {
	samples []*sample // of which the files have content; the first is the one that was mutated
	files   []*mutatedFile
	how     string
	lost    bool // lines were removed or mixed, so that a reader that counts lines counts others
	renamed bool
	mode    *mutatedFile // of a run in another mode, or nil
}

// mutatedFile is a file of a mutant.
type mutatedFile struct {
	path    string
	content []byte // before the file was compressed
	bytes   []byte // of the file
	packed  string // extension of the compression
	cut     bool   // the file ends within a record, a document or a compressed stream
	shorter bool   // the compressed file was cut
	again   bool   // lines follow again
}

// apply returns the mutants of a plan.
func (p plan) apply(t *testing.T, all []*sample) []*mutant {
	t.Helper()
	var mutants []*mutant
	for i, one := range p {
		s := all[one.sample]
		m := &mutant{samples: []*sample{s}, how: s.path}
		for _, f := range s.files {
			m.files = append(m.files, &mutatedFile{path: s.path + f.path, content: bytes.Clone(f.text)})
		}
		for _, seed := range one.mutations {
			m.mutate(rand.New(rand.NewPCG(seed, 0)), all)
		}
		for _, f := range m.files {
			f.bytes = f.content
		}
		if len(one.mutations) > 0 {
			m.pack(t, rand.New(rand.NewPCG(one.mutations[0], 1)))
		}
		for _, f := range m.files {
			f.path = filepath.Join(string(rune('a'+i)), f.path)
		}
		mutants = append(mutants, m)
	}
	return mutants
}

// mutate applies one mutation to one of the files.
func (m *mutant) mutate(rng *rand.Rand, all []*sample) {
	f := m.files[rng.IntN(len(m.files))]
	lines := splitLines(f.content)
	n := rng.IntN(len(lines))
	what := rng.IntN(8)
	other := all[rng.IntN(len(all))]
	text := other.files[rng.IntN(len(other.files))].text
	switch what {
	case 0:
		n := rng.IntN(len(f.content) + 1)
		f.cut, m.lost = f.cut && !isEventFile(f.content) || isCutWithin(f.content, n), true // an earlier cut of records may be gone
		f.content = f.content[:n]
		m.how += fmt.Sprintf(", %s cut at byte %d", f.path, n)
	case 1:
		f.content, f.cut, m.lost = bytes.Join(lines[n:], nil), false, true
		m.how += fmt.Sprintf(", %s without its first %d lines", f.path, n)
	case 2:
		f.content, f.cut, m.lost = bytes.Join(slices.Delete(lines, n, n+1), nil), false, true
		m.how += fmt.Sprintf(", %s without line %d", f.path, n+1)
	case 3:
		f.content, f.cut = interleave(rng, lines, text), false
		m.lost, m.samples = true, append(m.samples, other)
		m.how += fmt.Sprintf(", %s interleaved with %s", f.path, other.path)
	case 4:
		m.lost = m.lost || isJSONDocument(f.content) // which is none any more
		f.content, f.cut = slices.Concat(f.content, text), false
		m.samples = append(m.samples, other)
		m.how += fmt.Sprintf(", %s followed by %s", f.path, other.path)
	case 5: // resumed: the lines from another one on follow again
		if f.again { // derivations try sums over few ranks only
			return
		}
		again := rng.IntN(n + 1)
		f.content, f.cut, m.lost = slices.Concat(bytes.Join(lines[:n], nil), bytes.Join(lines[again:], nil)), false, true
		m.samples, f.again = append(m.samples, m.samples[0]), true
		m.how += fmt.Sprintf(", %s resumed after line %d from line %d on", f.path, n, again+1)
	case 6: // a run in another mode is beside it
		word := modeWords()[rng.IntN(len(modeWords()))]
		if len(m.files) > 1 || isEventFile(f.content) || m.samples[0].isOfKind([]string{"nvidia-smi", "trace"}) { // which belong to another run
			return
		}
		ext := filepath.Ext(f.path)
		m.mode = &mutatedFile{path: strings.TrimSuffix(f.path, ext) + "_" + word + ext, content: changeDecimals(f.content)}
		m.files = append(m.files, m.mode)
		m.how += ", beside " + m.mode.path
	default:
		m.rename(rng)
	}
}

// modeWords returns words in names that show the mode of a run.
func modeWords() []string {
	return []string{"fp16", "bf16", "XLA", "inference", "forward-only", "NVLink_XLA"}
}

// lastDecimal matches the decimals of a number.
var lastDecimal = regexp.MustCompile(`\.[0-9]+`)

// changeDecimals changes the last digit of each number with a fraction.
func changeDecimals(content []byte) []byte {
	return lastDecimal.ReplaceAllFunc(content, func(m []byte) []byte {
		m = bytes.Clone(m)
		m[len(m)-1] = '0' + (m[len(m)-1]-'0'+1)%10
		return m
	})
}

// meaningfulNames returns names that show, or seem to show, something about a run.
func meaningfulNames() []string {
	return []string{"n8", "gpu3", "4gpus", "rank1", "log_6", "x_log_12", "job-4711", "g5.12xlarge", "r50", "s1024", "world_size_16", "seed7", "N2_G4", "2026-11-23", "out", "cards_NVLink_XLA", "fp16", "forward-only.logs"}
}

// rename puts the files into a folder with another name, or renames a file that is alone.
func (m *mutant) rename(rng *rand.Rand) {
	name := meaningfulNames()[rng.IntN(len(meaningfulNames()))]
	m.renamed = true
	m.how += ", named " + name
	if f := m.files[0]; len(m.files) == 1 && rng.IntN(2) == 0 {
		f.path = filepath.Join(filepath.Dir(f.path), name+filepath.Ext(f.path))
		return
	}
	for _, f := range m.files {
		f.path = filepath.Join(name, f.path)
	}
}

// maxMagicBytes is the number of bytes that show a compression.
const maxMagicBytes = 10

// pack compresses one of the files in a quarter of all cases, and encodes it as UTF-16 in a
// twelfth. Half of the compressed files are cut.
func (m *mutant) pack(t *testing.T, rng *rand.Rand) {
	t.Helper()
	f := m.files[rng.IntN(len(m.files))]
	extensions := []string{".gz", ".zst", ".xz", ".bz2"}
	switch k := rng.IntN(16); {
	case k < len(extensions):
		f.packed = extensions[k]
		f.bytes = compressors()[f.packed](t, f.content)
		f.path += f.packed
		m.how += ", compressed to " + f.path
		if rng.IntN(2) == 0 {
			n := rng.IntN(len(f.bytes))
			f.bytes, f.cut, f.shorter, m.lost = f.bytes[:n], n >= maxMagicBytes, true, true
			m.how += fmt.Sprintf(", which was cut at byte %d", n)
		}
	case k == len(extensions) && !slices.ContainsFunc(f.content, func(c byte) bool { return c >= 0x80 || c == 0 }):
		f.bytes = []byte{0xff, 0xfe}
		for _, u := range utf16.Encode([]rune(string(f.content))) {
			f.bytes = append(f.bytes, byte(u), byte(u>>8))
		}
		m.how += ", " + f.path + " in UTF-16"
	}
}

// splitLines returns the lines of a text, or the complete records of an event file.
func splitLines(content []byte) [][]byte {
	if records := splitRecords(content); len(records) > 0 {
		return records
	}
	return bytes.SplitAfter(content, []byte("\n"))
}

// interleave mixes the lines or records of a file with the lines of a text, and keeps the order
// of each.
func interleave(rng *rand.Rand, x [][]byte, text []byte) []byte {
	y := splitLines(text)
	var out []byte
	for len(x)+len(y) > 0 {
		if len(y) == 0 || len(x) > 0 && rng.IntN(2) == 0 {
			x, y = y, x
		}
		if n := len(out); n > 0 && len(y[0]) > 0 && out[n-1] != '\n' && !isEventFile(out) {
			out = append(out, '\n')
		}
		out, y = append(out, y[0]...), y[1:]
	}
	return out
}

// isCutWithin reports whether a file that ends at byte n lacks the end of a record or of a JSON
// document.
func isCutWithin(content []byte, n int) bool {
	if isEventFile(content) {
		return len(bytes.Join(splitRecords(content[:n]), nil)) < n
	}
	return isJSONDocument(content) && n > 0 && n < len(bytes.TrimSpace(content))
}

// isJSONDocument reports whether a file is one JSON object, which may contain NaN.
func isJSONDocument(content []byte) bool {
	content = bytes.TrimSpace(content)
	for line := range bytes.Lines(content) {
		if bytes.IndexByte([]byte(" \t\r\n{}]\""), line[0]) < 0 {
			return false
		}
	}
	return bytes.HasPrefix(content, []byte("{")) && bytes.HasSuffix(content, []byte("}")) && !bytes.Contains(content, []byte("}\n{"))
}
