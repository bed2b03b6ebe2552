package logread

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/template"
)

// TestSuggestDamaged checks that for damaged logs of many forms, each proposed
// template can be parsed, and that reading with the proposal is no error.
func TestSuggestDamaged(t *testing.T) {
	originals := []string{
		"World size: 4\nEpoch 1: loss 0.5 time 2 s\nEpoch 2: loss 0.4 time 3 s (best)\nEpoch 3: loss 0.3 time 1m02s\n",
		"{\"epoch\": 1, \"loss\": 0.5}\n{\"epoch\": 2, \"loss\": 0.4}\n",
		"/epoch 1/ loss 1*2 {x} 3m12s\n/epoch 2/ loss 1*3 {x} 59s\n",
		"epoch  1\tloss 1e-3|| 12:30\nepoch 10\tloss -.5|| 1:12:30\n",
		"| ep | loss | acc |\n| 1/3 | nan | 51.2 % |\n| 2/3 | 0.5 | 61.2 % |\n| 3/3 | inf | 70 % |\n",
		"round,cost,dur_ms\n1,0.5,1500\n2,0.4,1400\n3,0.3,1450\n",
		"*** epoch 1 ***\n iter 10/20 loss 1,234.5 eta 0:00:10\n[train] loss: 0.7 | 2.9k samples/s\n*** epoch 2 ***\n iter 10/20 loss 1.2e3 eta 0:00:10\n[train] loss: 0.6 | 3.1k samples/s\n",
	}
	const marks = "{}*/ \t\r\n0123456789.,:;%|'\"\\\x00\x1b\xffeEnks"
	random := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	proposals := 0
	for i := range 400 {
		text := []byte(strings.Repeat(originals[i%len(originals)], 1+random.IntN(2)))
		for range random.IntN(6) {
			at := random.IntN(len(text))
			switch random.IntN(3) {
			case 0:
				text = append(text[:at:at], text[min(len(text), at+1+random.IntN(5)):]...)
			case 1:
				text[at] = marks[random.IntN(len(marks))]
			default:
				from := random.IntN(len(text))
				text = append(text[:at:at], append([]byte(string(text[from:min(len(text), from+random.IntN(30))])), text[at:]...)...)
			}
			if len(text) == 0 {
				text = []byte("x")
			}
		}
		path := filepath.Join(dir, "2gpu.log")
		check(t, os.WriteFile(path, text, 0o644))
		s, err := Suggest(path)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		for _, line := range s.Rules().Lines {
			if _, err := template.Parse(line); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
		if rules := s.Rules(); len(s.Commands()) > 0 {
			proposals++
			if _, err := (Options{Lines: rules.Lines, Columns: rules.Columns}).Read(t.Context(), path); err != nil {
				t.Errorf("%q: the proposal %q fails: %v", text, rules, err)
			}
		}
		_, _ = s.String(), s.HTML()
	}
	if proposals < 60 {
		t.Errorf("only %d proposals", proposals)
	}
}
