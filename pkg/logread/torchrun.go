package logread

import (
	"bytes"
	"fmt"
	"strings"

	"lockstep/pkg/runs"
)

// What torchrun says when a rank fails:
//
//	Root Cause (first observed failure):
//	[0]:
//	  time      : 2022-03-07_12:00:00
//	  host      : node01
//	  rank      : 3 (local_rank: 3)
//	  exitcode  : 1 (pid: 12345)
//	  error_file: <N/A>
//	  traceback : To enable traceback see: …

// failure is a block as far as it was read.
type failure struct {
	line                  int
	rank, host, code, why string
}

func (t *textLog) rootCause() verdict {
	t.failed()
	t.failing = failure{line: t.l.number}
	t.inBlock = failureBlock
	return used
}

// failureLine is a line of the block, which ends at a line of = or -.
func (t *textLog) failureLine(m []byte) verdict {
	if has(m, "====") || has(m, "----") {
		t.inBlock = noBlock
		t.failed()
		return idle
	}
	key, value, ok := bytes.Cut(m, []byte(":"))
	if !ok || len(value) > 1000 {
		return unknown
	}
	text := strings.TrimSpace(string(value))
	switch string(bytes.TrimSpace(key)) {
	case "rank":
		t.failing.rank, _, _ = strings.Cut(text, " ")
	case "host":
		t.failing.host = text
	case "exitcode":
		t.failing.code, _, _ = strings.Cut(text, " (pid")
	case "traceback", "msg", "message":
		if !strings.HasPrefix(text, "To enable traceback") {
			t.failing.why = text
		}
	case "time", "error_file", "[0]":
	default:
		return unknown
	}
	return used
}

// failed sets the run to failed once its block is read.
func (t *textLog) failed() {
	p := t.failing
	if p.line == 0 {
		return
	}
	t.failing = failure{}
	run := t.form(formFailure)
	text := "torchrun: a rank failed"
	if p.rank != "" {
		text = "torchrun: rank " + p.rank + " failed"
	}
	if p.host != "" {
		text += " on " + p.host
	}
	if p.code != "" {
		text += " with exit code " + p.code
	}
	if p.why != "" {
		text += ": " + p.why
	}
	run.run.Info.Status, run.run.Info.Error = runs.StatusFailed, fmt.Sprintf("%s (line %d)", text, p.line)
	t.in.report.Records++
}

// torchtitan's line of a step, with colours or without; tps are tokens a second
// and device, mfu is in percent.
//
//	step:  1  loss:  8.1309  grad_norm:  1.5  memory:  0.53GiB(0.56%)  tps: 7,123  tflops: 10.1  mfu: 35.20%

func (t *textLog) titan(m []byte) verdict {
	if bytes.IndexByte(m, 0x1b) >= 0 {
		m = withoutColours(m)
	}
	c := cursor{b: bytes.TrimLeft(m, " ")}
	step := c.lit("step:").blank().count()
	c.blank()
	if c.failed || !bytes.Contains(c.b, []byte("loss:")) {
		return unknown
	}
	now := nan()
	if len(t.stamp) > 0 {
		if at, ok := t.milliseconds(); ok {
			now = float64(at) / 1000
		}
	}
	t.form(formTitan)
	for len(c.b) > 0 {
		key, after, ok := bytes.Cut(c.b, []byte(":"))
		if !ok || !identifierText(key) {
			t.in.problem(t.l.number, "expected \"name: number\", got %.40q", c.b)
			return unused
		}
		c.b = after
		c.blank()
		end := bytes.IndexByte(c.b, ' ')
		if end < 0 {
			end = len(c.b)
		}
		word := c.b[:end]
		c.b = c.b[end:]
		c.blank()
		v, n := decimal(word)
		if n == 0 || n < len(word) && (word[n] == ',' || word[n] == '.') {
			var room [64]byte
			number := cursor{b: withoutCommas(room[:0], word)} // 7,123
			v = number.num()
			if number.failed {
				t.in.problem(t.l.number, "%s: expected a number, got %.40q", key, word)
				continue
			}
		} // its unit, such as % or GiB, follows
		t.point(key, max(t.rank, -1), int64(step), v, now)
	}
	return used
}

// withoutCommas appends the word without its commas.
func withoutCommas(to, word []byte) []byte {
	for _, c := range word {
		if c != ',' {
			to = append(to, c)
		}
	}
	return to
}

// withoutColours leaves out a terminal's escape sequences: ESC [ … letter.
func withoutColours(m []byte) []byte {
	var out []byte
	for i := 0; i < len(m); i++ {
		if m[i] != 0x1b {
			out = append(out, m[i])
			continue
		}
		if i+1 < len(m) && m[i+1] == '[' {
			i++
		}
		for i+1 < len(m) && !letter(m[i+1]) {
			i++
		}
		i++
	}
	return out
}
