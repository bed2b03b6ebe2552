package runs

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// jsonNumber is a float64 that is null in JSON if it is NaN (not measured, or diverged), and "+Inf"
// or "-Inf" if infinite.
type jsonNumber float64

func (n jsonNumber) MarshalJSON() ([]byte, error) {
	f := float64(n)
	switch {
	case math.IsNaN(f):
		return []byte("null"), nil
	case math.IsInf(f, 0):
		return strconv.AppendQuote(nil, strconv.FormatFloat(f, 'g', -1, 64)), nil
	}
	return json.Marshal(f)
}

func (n *jsonNumber) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "null":
		*n = jsonNumber(math.NaN())
		return nil
	case `"+Inf"`, `"-Inf"`, `"NaN"`:
		text = text[1 : len(text)-1]
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return fmt.Errorf("expected a number or null, got %s", text)
	}
	*n = jsonNumber(f)
	return nil
}

// stepFields is Step without its methods, which encoding/json would call recursively.
type stepFields Step

// stepJSON is the JSON form of a Step. Its Loss hides that of stepFields, because JSON has no NaN.
type stepJSON struct {
	stepFields
	Loss jsonNumber `json:"loss"`
}

// MarshalJSON writes a loss that is NaN as null.
func (s Step) MarshalJSON() ([]byte, error) {
	return json.Marshal(stepJSON{stepFields(s), jsonNumber(s.Loss)})
}

// UnmarshalJSON parses the output of MarshalJSON. A missing loss becomes NaN.
func (s *Step) UnmarshalJSON(text []byte) error {
	v := stepJSON{Loss: jsonNumber(math.NaN())}
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	*s = Step(v.stepFields)
	s.Loss = float64(v.Loss)
	return nil
}

type testJSON struct {
	Samples       int        `json:"samples"`
	Loss          jsonNumber `json:"loss"`
	IoU           jsonNumber `json:"iou"`
	Dice          jsonNumber `json:"dice"`
	IoUConstant   jsonNumber `json:"iou_constant"`
	DiceConstant  jsonNumber `json:"dice_constant"`
	IoUUntrained  jsonNumber `json:"iou_untrained"`
	DiceUntrained jsonNumber `json:"dice_untrained"`
	Checkpoint    string     `json:"checkpoint"`
	Seconds       jsonNumber `json:"seconds"`

	Classes []NamedScores `json:"classes,omitempty"`

	Task              string     `json:"task,omitempty"`
	Accuracy          jsonNumber `json:"accuracy,omitempty"`
	AccuracyConstant  jsonNumber `json:"accuracy_constant,omitempty"`
	AccuracyUntrained jsonNumber `json:"accuracy_untrained,omitempty"`
	LossUntrained     jsonNumber `json:"loss_untrained,omitempty"`
}

// MarshalJSON writes a value that was not measured (NaN) as null.
func (t Test) MarshalJSON() ([]byte, error) {
	return json.Marshal(testJSON{
		Samples: t.Samples, Loss: jsonNumber(t.Loss), IoU: jsonNumber(t.IoU), Dice: jsonNumber(t.Dice),
		IoUConstant: jsonNumber(t.IoUConstant), DiceConstant: jsonNumber(t.DiceConstant),
		IoUUntrained: jsonNumber(t.IoUUntrained), DiceUntrained: jsonNumber(t.DiceUntrained),
		Checkpoint: t.Checkpoint, Seconds: jsonNumber(t.Seconds), Classes: t.Classes,
		Task: t.Task, Accuracy: jsonNumber(t.Accuracy), AccuracyConstant: jsonNumber(t.AccuracyConstant),
		AccuracyUntrained: jsonNumber(t.AccuracyUntrained), LossUntrained: jsonNumber(t.LossUntrained),
	})
}

// UnmarshalJSON parses the output of MarshalJSON. A missing value becomes NaN.
func (t *Test) UnmarshalJSON(text []byte) error {
	n := jsonNumber(math.NaN())
	v := testJSON{
		Loss: n, IoU: n, Dice: n, IoUConstant: n, DiceConstant: n,
		IoUUntrained: n, DiceUntrained: n, Seconds: n,
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	*t = Test{
		Samples: v.Samples, Loss: float64(v.Loss), IoU: float64(v.IoU), Dice: float64(v.Dice),
		IoUConstant: float64(v.IoUConstant), DiceConstant: float64(v.DiceConstant),
		IoUUntrained: float64(v.IoUUntrained), DiceUntrained: float64(v.DiceUntrained),
		Checkpoint: v.Checkpoint, Seconds: float64(v.Seconds), Classes: v.Classes,
		Task: v.Task, Accuracy: float64(v.Accuracy), AccuracyConstant: float64(v.AccuracyConstant),
		AccuracyUntrained: float64(v.AccuracyUntrained), LossUntrained: float64(v.LossUntrained),
	}
	return nil
}
