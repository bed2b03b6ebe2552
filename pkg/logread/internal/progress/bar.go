// Package progress parses what training programs print while they run: tqdm's progress bars,
// meters with current values and means, lists of named values, and Python dictionaries.
// Its functions look at one line each and know nothing of runs.
package progress

import (
	"bytes"
	"iter"

	"lockstep/pkg/logread/internal/scan"
)

// Bar is a progress bar as tqdm 4 draws it (tqdm.format_meter):
//
//	Epoch 3/10: 100%|██████████| 625/625 [00:12<00:00, 51.20it/s, loss=0.31]
type Bar struct {
	Description []byte  // text before the percentage, without the colon
	Done, Total float64 // numbers of iterations
	Seconds     float64 // elapsed time, in whole seconds
	Rate        float64 // iterations per second; NaN if unknown
	Values      []byte  // what follows the rate, such as "loss=0.31, acc=0.9"
}

// IsFinished reports whether all iterations are done.
func (b *Bar) IsFinished() bool { return b.Total > 0 && b.Done == b.Total }

// PreciseSeconds returns the elapsed time in seconds. The bar shows it only in whole seconds, so
// PreciseSeconds divides the iterations by the rate, which has more digits. If the two disagree, it
// returns the whole seconds. Since tqdm rounds the rate and truncates the elapsed time, the result
// is limited to the range that the elapsed time allows.
func (b *Bar) PreciseSeconds() float64 {
	s := b.Done / b.Rate
	if s >= 0.99*b.Seconds && s <= 1.01*(b.Seconds+1) {
		return min(max(s, b.Seconds), b.Seconds+1)
	}
	return b.Seconds
}

// ParseBar parses a progress bar. ok is false if the line is not a bar or the total number of
// iterations is unknown.
func ParseBar(line []byte) (b Bar, ok bool) {
	percent := bytes.Index(line, []byte("%|"))
	begin := max(percent, 0)
	for begin > 0 && percent-begin < 3 && scan.IsDigit(line[begin-1]) {
		begin--
	}
	if begin == percent || percent < 0 {
		return b, false
	}
	b.Description = bytes.TrimRight(bytes.TrimSpace(line[:begin]), ":")
	_, rest, found := bytes.Cut(line[percent+2:], []byte("| "))
	c := scan.Cursor{Rest: rest, Failed: !found}
	b.Done = readNumberWithPrefix(c.SkipBlanks())
	b.Total = readNumberWithPrefix(c.Expect("/"))
	b.Seconds = readClock(c.SkipBlanks().Expect("["))
	c.Expect("<")
	end := bytes.LastIndexByte(c.Rest, ']')
	if c.Failed || end < 0 {
		return b, false
	}
	_, rest, _ = bytes.Cut(c.Rest[:end], []byte(", ")) // the remaining time
	rate, values, _ := bytes.Cut(rest, []byte(", "))
	b.Rate, b.Values = parseRate(rate), values
	return b, true
}

// parseRate parses a rate such as 51.20it/s, 1.20s/it or ?it/s. It returns NaN if it is unknown.
func parseRate(text []byte) float64 {
	c := scan.Cursor{Rest: text}
	rate := readNumberWithPrefix(c.SkipBlanks())
	if c.Accept("s/") {
		rate = 1 / rate
	}
	return rate
}

// readNumberWithPrefix reads a number with an optional SI prefix, as in 1.20k.
func readNumberWithPrefix(c *scan.Cursor) float64 {
	v := c.ReadFloat()
	if factor := scan.SIPrefixFactor(c.Rest[:min(len(c.Rest), 1)]); factor > 0 {
		v, c.Rest = v*factor, c.Rest[1:]
	}
	return v
}

// readClock reads a time of the form [days, ][hours:]minutes:seconds, and returns it in seconds.
func readClock(c *scan.Cursor) float64 {
	total := float64(c.ReadInteger())
	for c.Accept(":") {
		total = 60*total + float64(c.ReadInteger())
	}
	return total
}

// NamedValues iterates over the names and values of a list such as "loss=0.31, acc: 0.9", whose items
// between separates. Values that are not numbers are skipped.
func NamedValues(list []byte, between string) iter.Seq2[[]byte, float64] {
	return func(yield func([]byte, float64) bool) {
		for len(list) > 0 {
			item, rest, _ := bytes.Cut(list, []byte(between))
			list = rest
			i := bytes.IndexAny(item, "=:")
			if i <= 0 {
				continue
			}
			name := bytes.TrimSpace(item[:i])
			if v, ok := scan.ParseFloat(bytes.TrimSpace(item[i+1:])); ok && len(name) > 0 && len(name) <= maxValueNameLength && !yield(name, v) {
				return
			}
		}
	}
}

const maxValueNameLength = 100
