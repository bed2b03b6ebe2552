package runs

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// number is a float64 whose JSON form may be NaN or infinite: NaN (not measured, or
// diverged) is null, and the infinities are the strings "+Inf" and "-Inf".
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	switch {
	case math.IsNaN(f):
		return []byte("null"), nil
	case math.IsInf(f, 0):
		return strconv.AppendQuote(nil, strconv.FormatFloat(f, 'g', -1, 64)), nil
	}
	return json.Marshal(f)
}

func (n *number) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "null":
		*n = number(math.NaN())
		return nil
	case `"+Inf"`, `"-Inf"`, `"NaN"`:
		text = text[1 : len(text)-1]
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return fmt.Errorf("expected a number or null, got %s", text)
	}
	*n = number(f)
	return nil
}

// stepFields is Step without its methods, so that encoding/json does not call
// them recursively.
type stepFields Step

// stepJSON is the JSON form of a Step. Its Loss hides the field of stepFields, because JSON
// has no NaN.
type stepJSON struct {
	stepFields
	Loss number `json:"loss"`
}

// MarshalJSON writes a loss that is NaN as null.
func (s Step) MarshalJSON() ([]byte, error) {
	return json.Marshal(stepJSON{stepFields(s), number(s.Loss)})
}

// UnmarshalJSON parses the output of MarshalJSON. A missing loss becomes NaN.
func (s *Step) UnmarshalJSON(text []byte) error {
	v := stepJSON{Loss: number(math.NaN())}
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	*s = Step(v.stepFields)
	s.Loss = float64(v.Loss)
	return nil
}

// testJSON is the JSON form of a Test.
type testJSON struct {
	Samples       int    `json:"samples"`
	Loss          number `json:"loss"`
	IoU           number `json:"iou"`
	Dice          number `json:"dice"`
	IoUConstant   number `json:"iou_constant"`
	DiceConstant  number `json:"dice_constant"`
	IoUUntrained  number `json:"iou_untrained"`
	DiceUntrained number `json:"dice_untrained"`
	Checkpoint    string `json:"checkpoint"`
	Seconds       number `json:"seconds"`

	Task              string `json:"task,omitempty"`
	Accuracy          number `json:"accuracy,omitempty"`
	AccuracyConstant  number `json:"accuracy_constant,omitempty"`
	AccuracyUntrained number `json:"accuracy_untrained,omitempty"`
	LossUntrained     number `json:"loss_untrained,omitempty"`
}

// MarshalJSON writes a value that was not measured (NaN) as null.
func (t Test) MarshalJSON() ([]byte, error) {
	return json.Marshal(testJSON{
		Samples: t.Samples, Loss: number(t.Loss), IoU: number(t.IoU), Dice: number(t.Dice),
		IoUConstant: number(t.IoUConstant), DiceConstant: number(t.DiceConstant),
		IoUUntrained: number(t.IoUUntrained), DiceUntrained: number(t.DiceUntrained),
		Checkpoint: t.Checkpoint, Seconds: number(t.Seconds),
		Task: t.Task, Accuracy: number(t.Accuracy), AccuracyConstant: number(t.AccuracyConstant),
		AccuracyUntrained: number(t.AccuracyUntrained), LossUntrained: number(t.LossUntrained),
	})
}

// UnmarshalJSON parses the output of MarshalJSON. A missing value becomes NaN.
func (t *Test) UnmarshalJSON(text []byte) error {
	n := number(math.NaN())
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
		Checkpoint: v.Checkpoint, Seconds: float64(v.Seconds),
		Task: v.Task, Accuracy: float64(v.Accuracy), AccuracyConstant: float64(v.AccuracyConstant),
		AccuracyUntrained: float64(v.AccuracyUntrained), LossUntrained: float64(v.LossUntrained),
	}
	return nil
}
