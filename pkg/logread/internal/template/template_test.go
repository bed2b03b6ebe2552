package template

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/logread/internal/fields"
)

// match returns the values of the line as text, "no" if the template does not match it, or
// the error of Parse.
func match(text, line string) string {
	t, err := Parse(text)
	if err != nil {
		return err.Error()
	}
	values := make([]Value, len(t.Fields()))
	if !t.Match([]byte(line), values) {
		return "no"
	}
	var b strings.Builder
	for i, f := range t.Fields() {
		if i > 0 {
			b.WriteByte(' ')
		}
		if v := values[i]; f.Kind == fields.Text {
			fmt.Fprintf(&b, "%s=%q", f.Name, line[v.From:v.To])
		} else {
			fmt.Fprintf(&b, "%s=%.9g", f.Name, v.Number)
		}
	}
	return b.String()
}

// TestMatch: whole lines.
func TestMatch(t *testing.T) {
	const issue = "Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec"
	for _, c := range []struct{ template, line, want string }{
		{issue, "Epoch 1: loss 0.2972 time 0.607s, 422.0 samples/sec", "epoch=1 train_loss=0.2972 seconds=0.607 samples_per_second=422"},
		{issue, "  Epoch   1:  loss\t0.2972 time 0.607s,  422.0 samples/sec  ", "epoch=1 train_loss=0.2972 seconds=0.607 samples_per_second=422"},
		{issue, "Epoch 1: loss 0.2972 time 0.607s, 422.0 samples/sec!", "no"},
		{issue, "Epoch 1: loss 0.2972 time 0.607s, 422.0 samples/s", "no"},
		{issue, "xEpoch 1: loss 0.2972 time 0.607s, 422.0 samples/sec", "no"},
		{issue, "Epoch 1: loss 0.29Epoch 2: loss 0.28 time 0.607s, 422.0 samples/sec", "no"},
		{issue, "Epoch 1.5: loss 0.2972 time 0.607s, 422.0 samples/sec", "no"},
		{issue, "Epoch 1: loss nan time 6.07e-1s, 1.2k samples/sec", "epoch=1 train_loss=NaN seconds=0.607 samples_per_second=1200"},
		{issue, "", "no"},
		{"[{epoch}/{epochs}] {loss}", "[ 3/10] 1e-05", "epoch=3 epochs=10 loss=1e-05"},
		{"{a},{b}", "1,234", "a=1 b=234"},
		// Places whose meaning is not known.
		{"{?1} epoch {epoch} gain {?2}, loss {loss}{?3}", "10:00 epoch 3 gain 4 days, 1:02:03, loss 0.5 (best)", "epoch=3 loss=0.5"},
		{"{?1} {?2} epoch {epoch}", "a b epoch 3", "epoch=3"},
		{"loss {?1}{loss}", "loss 0.5", "loss=0.5"},
		{"{?}*{?12} loss {loss}", "x loss 0.5", "loss=0.5"},
		{"{?x} loss {loss}", "", `invalid template "{?x} loss {loss}": character 2: got the field {?x}, want a name of letters, digits and the characters _-./`},
		{"loss {?1}", "", `invalid template "loss {?1}": character 10: got no field, want at least one such as {epoch} or {train_loss}`},
		// Decimal commas.
		{"Verlust {train_loss:,} Zeit {seconds:,} s", "Verlust 1,0000 Zeit 12,4 s", "train_loss=1 seconds=12.4"},
		{"Verlust {train_loss:,} Zeit {seconds:,}", "Verlust 0,125 Zeit 1,234 min", "train_loss=0.125 seconds=74.04"},
		{"Verlust {train_loss:,}", "Verlust 2", "train_loss=2"},
		{"Verlust {train_loss:,}", "Verlust 2,", "no"},
		{"Verlust {train_loss:,}, lr {lr:,}", "Verlust -2,5, lr 1,5e-05", "train_loss=-2.5 lr=1.5e-05"},
		{"Verlust {train_loss:,}", "Verlust 0.5", "no"},
		{"Verlust {train_loss:,}", "Verlust 1.234", "no"}, // 1234, or a decimal point
		{"Verlust {train_loss:,}", "Verlust 1.234,5", "train_loss=1234.5"},
		{"Verlust {train_loss:,}", "Verlust 12.34,5", "no"},
		{"a {x:,}*", "a 1,2,3", "no"},
		{"Zeit {seconds:,ms}", "Zeit 12,5", "seconds=0.0125"},
		{"Genauigkeit {accuracy:,}", "Genauigkeit 91,5 %", "accuracy=0.915"},
		{"Verlust {train_loss:,}.", "Verlust 0,5.", "train_loss=0.5"},
		{"{a}, {b}", "1,234, 5", "a=1234 b=5"},
		{"took {seconds} min", "took 1,625 min", "seconds=97500"},
		{"took {seconds} min", "took 0,625 min", "no"}, // a decimal comma
		{"took {seconds} min", "took -0,625 min", "no"},
		{"took {x} of 5", "took 10,000.5 of 5", "x=10000.5"},
		{"took {x} of 5", "took 00,000 of 5", "no"},
		{"{a}:{b}", "3:12", "a=3 b=12"},
		{"{{{a}}}", "{5}", "a=5"},
		{"loss is {a}.", "loss is 0.5.", "a=0.5"},
		{"loss is {a}.", "loss is 5.", "a=5"},
		{"a{x}", "a 0x1f", "no"},
		{"a {x}*", "a 1.2.3", "no"},
		{"a {x}*", "a 12ab34", "no"},
		{"mem {x}*", "mem 12GB", "no"},
		{"mem {x}GB", "mem 12GB", "x=12"},
		{"mem {x} *", "mem 12 GB", "x=12"},
		{"loss {x}", "loss -inf", "x=-Inf"},
		{"loss {x}", "loss info", "no"},
		{"loss {x}", "loss 12345678901234567890.5", "x=1.23456789e+19"},
		// * and texts
		{"*loss {x}*", "epoch 1 loss 0.5 acc 3", "x=0.5"},
		{"*{x}", "a 1 b 2 c 3.5", "x=3.5"},
		{"*{x}", "at 1,234", "x=1234"},
		{"*{x} steps", "12 of 34 steps", "x=34"},
		{"*{x} steps", "3.14.15 steps", "no"},
		{"{x}*", "1 b 2", "x=1"},
		{"a*b", "ab", `invalid template "a*b": character 4: got no field, want at least one such as {epoch} or {train_loss}`},
		{"a*b {x}", "a b b 1", "x=1"},
		{"*a*b*{x}*c", "aab 5 c c", "x=5"},
		{"{x} *", "5", "no"},
		{"{x}*", "5", "x=5"},
		{"Model: {model}", "Model: ResNet 50 ", `model="ResNet 50"`},
		{"Model: {model}", "Model: ", "no"},
		{"model {model} batch {batch}", "model a batch b batch 32", `model="a batch b" batch=32`},
		{"{series}: {x}", "a: b: 3", `series="a: b" x=3`},
		{"{series}: {x}", ": 3", "no"},
		// regular expressions
		{`/epoch=(?P<epoch>\d+).*t=(?P<seconds>\S+)/`, "x epoch=3 loss=1 t=12ms!", "no"},
		{`/epoch=(?P<epoch>\d+).*t=(?P<seconds>\w+)/`, "x epoch=3 loss=1 t=12ms!", "epoch=3 seconds=0.012"},
		{`/(?P<model>\w+) (?P<x>\S+)/`, "net 1,234.5", `model="net" x=1234.5`},
	} {
		if got := match(c.template, c.line); got != c.want {
			t.Errorf("%q, line %q:\ngot  %s\nwant %s", c.template, c.line, got, c.want)
		}
	}
}

// TestUnits: every unit in the line and in the template.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		template, line string
		want           float64
	}{
		{"t {seconds}", "t 12", 12},
		{"t {seconds}", "t 12s", 12},
		{"t {seconds}", "t 12 s", 12},
		{"t {seconds}", "t 12sec", 12},
		{"t {seconds}", "t 12 secs", 12},
		{"t {seconds}", "t 12 seconds", 12},
		{"t {seconds}", "t 12 Seconds", 12},
		{"t {seconds}", "t 1 second", 1},
		{"t {seconds}", "t 12ms", 0.012},
		{"t {seconds}", "t 12 milliseconds", 0.012},
		{"t {seconds}", "t 12us", 12e-6},
		{"t {seconds}", "t 12µs", 12e-6},
		{"t {seconds}", "t 12ns", 12e-9},
		{"t {seconds}", "t 1.5min", 90},
		{"t {seconds}", "t 1.5 minutes", 90},
		{"t {seconds}", "t 1.5m", 90},
		{"t {seconds}", "t 1.5h", 5400},
		{"t {seconds}", "t 1.5 hours", 5400},
		{"t {seconds}", "t 2d", 172800},
		{"t {seconds}", "t 1:02:03", 3723},
		{"t {seconds}", "t 1:02:03.5", 3723.5},
		{"t {seconds}", "t 12:30", 750},
		{"t {seconds}", "t 0:00:00.607", 0.607},
		{"t {seconds}", "t 1 day, 2:03:04", 93784},
		{"t {seconds}", "t 2 days, 2:03:04", 180184},
		{"t {seconds}", "t 3m12s", 192},
		{"t {seconds}", "t 1h02m03s", 3723},
		{"t {seconds}", "t 1h 2m 3.5s", 3723.5},
		{"t {seconds}", "t 2 min 5 s", 125},
		{"t {seconds}, x", "t 1.5 min, x", 90},
		{"t {seconds} ms", "t 12 ms", 0.012},
		{"t {seconds}ms", "t 12ms", 0.012},
		{"t {seconds} min *", "t 12 min 5", 720},
		{"t {seconds}s", "t 1:02:03s", 3723},
		{"t {seconds} s/epoch", "t 12 s/epoch", 12},
		{"t {seconds:ms}", "t 12", 0.012},
		{"t {step_seconds} ms/step", "t 250 ms/step", 0.25},
		{"t {val_seconds}*", "t 250ms 7", 0.25},
		{"{accuracy}%", "93.5%", 0.935},
		{"{accuracy} %", "93.5 %", 0.935},
		{"{accuracy}", "93.5%", 0.935},
		{"{accuracy}*", "93.5 % of", 0.935},
		{"{accuracy} *", "0.935 of", 0.935},
		{"{accuracy:%}", "93.5", 0.935},
		{"{val_accuracy} percent", "93.5 percent", 0.935},
		{"{iou}%", "50%", 0.5},
		{"{dice}%", "50%", 0.5},
		{"{gpu}%", "93%", 93},
		{"{gpu}", "93%", 93},
		{"{samples_per_second}", "1.2k", 1200},
		{"{samples_per_second}", "1.2M", 1.2e6},
		{"{samples_per_second}k/s", "1.2k/s", 1200},
		{"{samples_per_second} samples/s", "1,234.5 samples/s", 1234.5},
		{"{samples_per_second} samples/s", "12,345,678 samples/s", 12345678},
		{"{samples}", "1.2k", 1200},
		{"{samples}", "60,000", 60000},
		{"{tokens}", "1.2G", 1.2e9},
		{"{eta}", "1:02:03", 3723},
		{"{eta}", "3m12s", 192},
		{"{forward}", "12ms", 0.012},
		{"{forward}ms", "12ms", 0.012},
		{"{forward} ms", "12 ms", 12}, // a metric's unit is attached
		{"{x}m", "12m", 12},
		{"avg {x} min *", "avg 5 min 3", 5},
		{"{x}", "-1,234.5", -1234.5},
		{"{x}", "+.5", 0.5},
		{"{x}", "1e3", 1000},
		{"{x}", "1.5E-3", 0.0015},
	} {
		tmpl, err := Parse(c.template)
		if err != nil {
			t.Error(err)
			continue
		}
		var v [1]Value
		if !tmpl.Match([]byte(c.line), v[:]) {
			t.Errorf("%q does not match %q: %+v", c.template, c.line, tmpl.FindMismatch([]byte(c.line)))
		} else if math.Abs(v[0].Number-c.want) > 1e-12*math.Abs(c.want) {
			t.Errorf("%q, line %q: got %g, want %g", c.template, c.line, v[0].Number, c.want)
		}
	}
	for _, c := range [][2]string{
		{"{seconds}", "12 parsecs"},
		{"{seconds}", "3m12"},
		{"{seconds}", "1:2:3"},
		{"{seconds}", "1:02:99"},
		{"{seconds}", "1.5:30"},
		{"{x}", "12m"},
		{"{x}", "1.2kB"},
		{"{x}", "1,23"},
		{"{x}", "1,2345"},
		{"{x}", "1234,567"},
		{"{epoch}", "1.5"},
		{"{epoch}", "nan"},
		{"{epoch}", "1e300"},
		{"{train_loss}", "12ms"},
		{"{accuracy}", "12s"},
		{"{x}", "--5"},
		{"{x}", "1_000"},
		{"{x}", "."},
		{"{x}", "-"},
	} {
		if got := match(c[0], c[1]); got != "no" {
			t.Errorf("%q, line %q: got %s, want no match", c[0], c[1], got)
		}
	}
}

// TestParseErrors: the errors contain the position and what is expected.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "character 1: got no field",
		"Epoch":                  "character 6: got no field",
		"Epoch {epoch":           "character 7: got { without }",
		"größe {":                "character 7: got { without }",
		"Epoch {}":               "character 8: got the field {}",
		"Epoch {ep och}":         "character 8: got the field {ep och}",
		"{a}{b}":                 "character 4: got {b} directly after another field",
		"{a} {a}":                "character 5: duplicate field {a}",
		"*{model}":               "character 2: got {model} directly after *",
		"{model}*":               "character 8: got * after a field of a text",
		"{seconds:parsecs}":      `character 10: got the unit "parsecs" for {seconds}, want a unit of time`,
		"{epoch:,}":              `got the unit "," for {epoch}`,
		"{model:s}":              `got the unit "s" for {model}, want none`,
		"/(/":                    "missing closing )",
		"/epoch/":                "has no named group",
		"/(?P<a>.)(?P<a>.)/":     "duplicate",
		"{accuracy:s} {x:%} {y}": `character 11: got the unit "s" for {accuracy}, want %`,
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// TestMismatch: where a line begins to differ.
func TestMismatch(t *testing.T) {
	for _, c := range []struct {
		template, line string
		offset         int
		expected       string
	}{
		{"Epoch {epoch}: loss {x}", "Epoch 1 - loss 0.5", 7, `": loss "`},
		{"Epoch {epoch}: loss {x}", "Epoch one: loss 0.5", 6, "a whole number for {epoch}"},
		{"Epoch {epoch}: loss {x}", "Epoch 1: loss 0.5 (best)", 17, "the end of the line"},
		{"Epoch {epoch}: loss {x}", "Epoch 1: lass 0.5", 10, `"oss "`},
		{"Epoch {epoch}: mem {x}*", "Epoch 1: mem 5GB", 14, "the end of the number or a known unit"},
		{"*loss {x} acc {y}", "a loss 0.5 acc: 3", 14, `" "`},
		{"*loss {x}", "a lass", 0, `the text "loss "`},
		{"took {seconds} min", "took 0,625 min", 6, `" min"; if the comma is the decimal mark, write {seconds:,} in the template`},
		{"took {seconds} min", "took 12,5 min", 7, `" min"; if the comma is the decimal mark, write {seconds:,} in the template`},
		{"/a(?P<x>.)/", "b", 0, "a text that the regular expression matches"},
	} {
		tmpl, err := Parse(c.template)
		if err != nil {
			t.Fatal(err)
		}
		if m := tmpl.FindMismatch([]byte(c.line)); m.Offset != c.offset || m.Expected != c.expected {
			t.Errorf("%q, line %q: got %+v, want offset %d and %s", c.template, c.line, m, c.offset, c.expected)
		}
	}
}

// TestPrefix: each line that the template matches begins with the prefix.
func TestPrefix(t *testing.T) {
	for text, want := range map[string]string{
		"Epoch {epoch}": "Epoch", "Time taken for {x}": "Time", "*{x}": "", "{x}": "", "loss={x}": "loss=", "/a(?P<x>.)/": "", "{model} a": "",
	} {
		tmpl, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := tmpl.Prefix(); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestAdversarial: lines of a megabyte that almost match take well under a second each. A matcher whose
// time grows with the square of the length would take hours.
func TestAdversarial(t *testing.T) {
	for _, c := range []struct{ template, repeated string }{
		{"*{a}*{b}*{c}*x", "1 "},
		{"*{a}*{b}*{c}*x", "1"},
		{"*1{a}x", "1"},
		{"*a{x}*a{y}*ab", "a"},
		{"* a{x}", " "},
		{"*{seconds}x", "1 "},
		{"*{seconds}x", "1:00"},
		{"*{x}x", "1,111"},
		{"*{x}y", "nan"},
		{"*{x}y", "1e"},
		{"a{x}", " "},
		{"{model} a{x}", " a"},
		{"{model} a {x}", " a "},
		{"*aaaaaaaaaaaaaaaaaaaab{x}", "a"},
	} {
		tmpl, err := Parse(c.template)
		if err != nil {
			t.Fatal(err)
		}
		line := []byte(strings.Repeat(c.repeated, (1<<20)/len(c.repeated)))
		values := make([]Value, len(tmpl.Fields()))
		begin := time.Now()
		if tmpl.Match(line, values) {
			t.Errorf("%q matches", c.template)
		}
		tmpl.FindMismatch(line)
		if d := time.Since(begin); d > 30*time.Second {
			t.Errorf("%q, line of %q: %s", c.template, c.repeated, d)
		}
	}
}

// TestMatchAllocates: Match allocates nothing.
func TestMatchAllocates(t *testing.T) {
	tmpl, err := Parse("Epoch {epoch}: loss {train_loss} time {seconds}, {samples_per_second} samples/sec*")
	if err != nil {
		t.Fatal(err)
	}
	line := []byte("Epoch 1: loss 2.9e-1 time 3m12s, 1,422.0 samples/sec and more")
	values := make([]Value, len(tmpl.Fields()))
	if n := testing.AllocsPerRun(100, func() {
		if !tmpl.Match(line, values) {
			t.Fatal("no match")
		}
	}); n > 0 {
		t.Errorf("got %g allocations", n)
	}
}

// FuzzMatch: Match and Mismatch do not fail for any template and line, and the ranges of
// the values are in the line.
func FuzzMatch(f *testing.F) {
	f.Add("Epoch {epoch}: loss {train_loss} time {seconds}s", "Epoch 1: loss 0.5 time 1:02:03s")
	f.Add("*{model} a {x}*", "1 day, 2:03:04 a 1,234")
	f.Add("/(?P<x>.*)/", "1.2k")
	f.Fuzz(func(t *testing.T, text, line string) {
		tmpl, err := Parse(text)
		if err != nil {
			return
		}
		values := make([]Value, len(tmpl.Fields()))
		if !tmpl.Match([]byte(line), values) {
			if m := tmpl.FindMismatch([]byte(line)); m.Offset < 0 || m.Offset > len(line) || m.Expected == "" {
				t.Errorf("%q, line %q: got %+v", text, line, m)
			}
			return
		}
		if tmpl.regexp == nil && !strings.HasPrefix(strings.TrimLeft(line, " \t"), tmpl.Prefix()) {
			t.Errorf("%q matches %q, which does not begin with %q", text, line, tmpl.Prefix())
		}
		for i, v := range values {
			if tmpl.regexp == nil && (v.From < 0 || v.To <= v.From) || v.To > len(line) {
				t.Errorf("%q, line %q: field %d is %+v", text, line, i, v)
			}
		}
	})
}
