package compress

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Method{
		"fp16": {Name: FP16}, "bf16": {Name: BF16},
		"topk": {Name: TopK, Ratio: 0.01}, "topk:0.5": {Name: TopK, Ratio: 0.5}, "topk:1": {Name: TopK, Ratio: 1},
		"powersgd": {Name: PowerSGD, Rank: 4}, "powersgd:1": {Name: PowerSGD, Rank: 1},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
		if back, err := Parse(got.String()); err != nil || back != want {
			t.Errorf("%s: String gives %q, which is %+v, %v", text, got, back, err)
		}
	}
	for text, want := range map[string]string{
		"topq":       `unknown method "topq" (did you mean topk?): use fp16, bf16, topk or powersgd`,
		"":           `unknown method ""`,
		"fp16:2":     `got option "2" of fp16, which has no options: use fp16`,
		"topk:":      `invalid ratio "": use the part of the elements to send, above 0 and at most 1, as in topk:0.01`,
		"topk:0":     `invalid ratio "0"`,
		"topk:1.5":   `invalid ratio "1.5"`,
		"topk:NaN":   `invalid ratio "NaN"`,
		"powersgd:0": `invalid rank "0": use a whole number, at least 1, as in powersgd:4`,
		"powersgd:x": `invalid rank "x"`,
	} {
		if _, err := Parse(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", text, err, want)
		}
	}
}
