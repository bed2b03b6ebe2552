package textlog

import (
	"bytes"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/logread/internal/textlog/internal/system"
)

// Message is a line without the labels of launchers and the time stamps of loggers.
type Message struct {
	Text string
	// System is set for a line of a shell, a job scheduler or a launcher that a format reads,
	// unless only the rank at its beginning is read and numbers follow.
	System bool
	Rank   int     // in the label; -1 if the line has none
	Clock  float64 // time stamp in seconds since 1970, or NaN
}

// Messages returns the lines of a text. It keeps labels that rise from line to line, since they are
// not ranks.
func Messages(text []byte) []Message {
	in := &record.Input{Reader: bytes.NewReader(text), Size: int64(len(text)), Report: &record.Report{}}
	t := newReader(in)
	var messages []Message
	var labeled []int // indexes of the messages with a label
	var lines []string
	seen := map[int]bool{}
	for line, ok := t.Lines.Next(); ok; line, ok = t.Lines.Next() {
		whole := line
		if t.Lines.HasCR {
			whole = line[bytes.LastIndexByte(line, '\r')+1:]
		}
		t.Rank, t.Stamp = -1, nil
		m := Message{Text: string(t.StripPrefix(whole))}
		m.Rank, m.Clock = t.Rank, t.StampSeconds()
		if t.Rank >= 0 {
			labeled, lines = append(labeled, len(messages)), append(lines, string(whole))
			seen[t.Rank] = true
		}
		before := t.countSystemLines()
		t.parseLine(line)
		m.System = t.countSystemLines() > before && !hasNumbersAfterRank(m.Text)
		messages = append(messages, m)
	}
	if len(labeled) > 1 && len(seen) == len(labeled) && len(labeled) < len(messages)+1 && labelsAreConsecutive(seen) {
		for i, at := range labeled {
			messages[at].Text, messages[at].Rank = lines[i], -1
		}
	}
	return messages
}

// hasNumbersAfterRank reports whether numbers follow the rank at a line's beginning, as in "[rank
// 0/2] Epoch 1".
func hasNumbersAfterRank(message string) bool {
	_, _, rest, ok := system.ParseRankAndSize([]byte(message))
	return ok && bytes.ContainsAny(rest, "0123456789")
}

// labelsAreConsecutive reports whether the labels are all numbers from 0 or 1 to their maximum.
func labelsAreConsecutive(labels map[int]bool) bool {
	for i := 1; i < len(labels); i++ {
		if !labels[i] {
			return false
		}
	}
	return labels[0] || labels[len(labels)]
}

// countSystemLines returns how many lines of shells, schedulers and launchers the current run has used.
func (t *reader) countSystemLines() int {
	n := 0
	for _, f := range []logline.FormatID{logline.Command, logline.Slurm, logline.BashTime, logline.GNUTime, logline.ZshTime, logline.Seff, logline.Torchrun, logline.OutOfMemory} {
		n += t.Current.LinesByFormat[f]
	}
	return n
}
