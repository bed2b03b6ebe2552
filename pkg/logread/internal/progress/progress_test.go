package progress

import (
	"fmt"
	"math"
	"testing"
)

// TestParseBar compares bars with the strings that tqdm 4 returns for them.
func TestParseBar(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		line                       string
		description                string
		done, total, seconds, rate float64
		values                     string
		precise                    float64
		finished, ok               bool
	}{
		{"Epoch 3/10: 100%|██████████| 625/625 [00:12<00:00, 50.00it/s, loss=0.31]", "Epoch 3/10", 625, 625, 12, 50, "loss=0.31", 12.5, true, true},
		{"100%|##########| 10/10 [1:02:03<00:00, 372.30s/it]", "", 10, 10, 3723, 1 / 372.3, "", 3723, true, true},
		{"Epoch 1:  50%|█████     | 312/625 [00:06<00:06, 50.10it/s]", "Epoch 1", 312, 625, 6, 50.1, "", 312 / 50.1, false, true},
		{"train:   0%|          | 0/5 [00:00<?, ?it/s]", "train", 0, 5, 0, nan, "", 0, false, true},
		{"x: 100%|██████████| 1.20k/1.20k [00:10<00:00, 120 img/s, loss=nan, lr=1e-05]", "x", 1200, 1200, 10, 120, "loss=nan, lr=1e-05", 10, true, true},
		{"Epoch 1: 100%|██████████| 100/100 [00:20<00:00, 50.00it/s]", "Epoch 1", 100, 100, 20, 50, "", 20, true, true}, // the rate is of the last steps only
		{"loss fell by 5%| see 1/2 [00:01<00:00, 1it/s]", "", 0, 0, 0, 0, "", 0, false, false},
		{"Epoch 1: 100%|██████████| 100/100 [00:20<00:0", "", 0, 0, 0, 0, "", 0, false, false},
		{"100%|", "", 0, 0, 0, 0, "", 0, false, false},
		{"%|", "", 0, 0, 0, 0, "", 0, false, false},
	} {
		b, ok := ParseBar([]byte(c.line))
		if ok != c.ok {
			t.Errorf("%q: got ok %v", c.line, ok)
		}
		if !ok {
			continue
		}
		got := fmt.Sprintf("%q %g %g %g %.9g %q %.9g %v", b.Description, b.Done, b.Total, b.Seconds, b.Rate, b.Values, b.PreciseSeconds(), b.IsFinished())
		if want := fmt.Sprintf("%q %g %g %g %.9g %q %.9g %v", c.description, c.done, c.total, c.seconds, c.rate, c.values, c.precise, c.finished); got != want {
			t.Errorf("%q:\ngot  %s\nwant %s", c.line, got, want)
		}
	}
}

// TestValues: values that are not numbers are skipped.
func TestValues(t *testing.T) {
	got := ""
	for name, v := range NamedValues([]byte("v_num=3, loss: 0.5, state=ok, , acc=nan, x"), ", ") {
		got += fmt.Sprintf("%s %g,", name, v)
	}
	if want := "v_num 3,loss 0.5,acc NaN,"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestNextMeter parses meters of PyTorch's ImageNet example and of torchvision.
func TestNextMeter(t *testing.T) {
	for line, want := range map[string]string{
		"Time  0.250 ( 0.300)\tData  0.001 ( 0.030)\tLoss 6.2000e+00 (6.5e+00)\tAcc@1   2.00 (  1.50)": "Time 0.25 0.3|Data 0.001 0.03|Loss 6.2 6.5|Acc@1 2 1.5|",
		"lr: 0.1  img/s: 512.25  loss: nan (6.5000)  max mem: 5100":                                    "lr 0.1 NaN|img/s 512.25 NaN|loss NaN 6.5|max mem 5100 NaN|",
		"loss: 5":          "loss 5 NaN|",
		"loss 5 of 7":      "!",
		"the loss is good": "!",
		"loss: (5)":        "!",
		"loss: 5 (6":       "!",
		"loss: 5s":         "!",
	} {
		got := ""
		for rest := []byte(line); len(rest) > 0; {
			m, after, ok := NextMeter(rest)
			if !ok {
				got += "!"
				break
			}
			got += fmt.Sprintf("%s %g %g|", m.Name, m.Value, m.Mean)
			rest = after
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", line, got, want)
		}
	}
}

// TestAppendDict parses dictionaries as Python 3 prints them.
func TestAppendDict(t *testing.T) {
	for line, want := range map[string]string{
		"{'loss': 0.4, 'learning_rate': 5e-05, 'epoch': 0.5}":                         "loss 0.4,learning_rate 5e-05,epoch 0.5,",
		"{'loss': '0.4', 'epoch': '1'}":                                               "loss 0.4,epoch 1,",
		"{'a': nan, 'b': [1, 2], 'c': {'d': 1}, \"e\": -inf, 'f': None, 'g': 'x, y'}": "a NaN,e -Inf,",
		"{'loss': 0.4, 'epoch': 0.":                                                   "no",
		"{'loss': 0.4":                                                                "no",
		"{loss: 0.4}":                                                                 "no",
		"{'loss'}":                                                                    "no",
		"{'a': [1}":                                                                   "no",
		"{'a': 1,}":                                                                   "no",
		"{}":                                                                          "no",
		"{":                                                                           "no",
	} {
		all, ok := AppendDict(nil, []byte(line))
		got := ""
		for _, e := range all {
			got += fmt.Sprintf("%s %g,", e.Key, e.Value)
		}
		if !ok {
			got = "no"
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}

// FuzzParse: no line makes a function panic, and the values that ParseBar
// returns are consistent.
func FuzzParse(f *testing.F) {
	f.Add([]byte("Epoch 3/10: 100%|██████████| 625/625 [00:12<00:00, 51.20it/s, loss=0.31]"))
	f.Add([]byte("{'loss': '0.4', 'epoch': 1}"))
	f.Add([]byte("Loss 6.2000e+00 (6.5e+00)\tmax mem: 5"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if b, ok := ParseBar(line); ok && (b.Seconds < 0 || len(b.Description) > len(line)) {
			t.Errorf("%q: got %+v", line, b)
		}
		for name := range NamedValues(line, ", ") {
			if len(name) == 0 {
				t.Fatalf("%q: a value has no name", line)
			}
		}
		for rest := line; ; {
			m, after, ok := NextMeter(rest)
			if !ok {
				break
			}
			if len(m.Name) == 0 || len(after) >= len(rest) {
				t.Fatalf("%q: NextMeter does not advance: %+v", line, m)
			}
			rest = after
		}
		if all, ok := AppendDict(nil, line); ok && len(all) > len(line) {
			t.Errorf("%q: got %d entries", line, len(all))
		}
	})
}
