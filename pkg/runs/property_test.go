package runs

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// value generates any float64, because training can produce NaN and Inf.
func value() *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, 5e-324}))
}

func TestRunRoundTrip(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(base, "run")
		check(t, err)
		num := value()
		duration := rapid.OneOf(rapid.Just(math.NaN()), rapid.Float64Range(0, math.MaxFloat64))
		text := rapid.String().Filter(func(s string) bool { return strings.ToValidUTF8(s, "") == s })
		info := Info{
			Study: text.Draw(rt, "study"), Series: text.Draw(rt, "series"),
			Workers: rapid.IntRange(1, 1024).Draw(rt, "workers"), Seed: rapid.Int64().Draw(rt, "seed"),
			Status: StatusRunning, Started: time.Unix(rapid.Int64Range(1, 1<<32).Draw(rt, "started"), 5).UTC(),
			Config: map[string]any{"lr": rapid.Float64().Draw(rt, "lr"), "name": text.Draw(rt, "name")},
			Test: &Test{
				Samples: 3, Loss: num.Draw(rt, "loss"), IoU: num.Draw(rt, "iou"), Dice: num.Draw(rt, "dice"),
				IoUConstant: num.Draw(rt, "c"), DiceConstant: num.Draw(rt, "dc"), IoUUntrained: num.Draw(rt, "u"),
				DiceUntrained: num.Draw(rt, "du"), Seconds: num.Draw(rt, "s"), Checkpoint: text.Draw(rt, "checkpoint"),
				Task: text.Draw(rt, "task"), Accuracy: num.Draw(rt, "a"), AccuracyConstant: num.Draw(rt, "ac"),
				AccuracyUntrained: num.Draw(rt, "au"), LossUntrained: num.Draw(rt, "lu"),
			},
		}
		w, err := Create(dir, info)
		check(t, err)
		epochs := []Epoch{}
		for n := range rapid.IntRange(0, 3).Draw(rt, "epochs") {
			epochs = append(epochs, Epoch{
				Epoch: n + 1, Seconds: duration.Draw(rt, "seconds"), Samples: rapid.Int().Draw(rt, "samples"),
				PaddingSamples: rapid.Int().Draw(rt, "padding"), SamplesPerSecond: duration.Draw(rt, "rate"),
				TrainLoss: num.Draw(rt, "train"), ValLoss: num.Draw(rt, "val"), IoU: num.Draw(rt, "eiou"),
				Dice: num.Draw(rt, "edice"), ValSeconds: duration.Draw(rt, "vs"), LearningRate: num.Draw(rt, "elr"),
				Accuracy: num.Draw(rt, "accuracy"), ValAccuracy: num.Draw(rt, "val_accuracy"), Line: n + 2,
			})
			check(t, w.AppendEpoch(epochs[n]))
		}
		steps, err := OpenSteps(dir, 0, Worker{WorldSize: 1, Host: text.Draw(rt, "host")})
		check(t, err)
		step := Step{Epoch: 1, Step: 1, Loss: num.Draw(rt, "steploss"), Data: rapid.Float64Min(0).Draw(rt, "data")}
		check(t, steps.AppendStep(step))
		check(t, steps.Close())

		run, err := Read(dir) // before Finish: as after a kill
		check(t, err)
		info.Schema = SchemaVersion
		equal(t, run.Info, info)
		equal(t, run.Epochs, epochs)
		equal(t, run.Problems, []Problem(nil))
		_, got, _, err := ReadSteps(dir, 0)
		check(t, err)
		equal(t, got, []Step{step})
		check(t, w.Finish(StatusDone, nil))
		if t.Failed() {
			rt.FailNow()
		}
		check(t, os.RemoveAll(dir))
	})
}

func FuzzReadEpochs(f *testing.F) {
	f.Add([]byte(epochFileHeader + "\n" + formatEpoch(sampleEpoch(1)) + "\n2,"))
	f.Add([]byte("epoch,epoch\n1,2\n"))
	f.Add([]byte("\"\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		epochs, problems, err := readEpochs(bytes.NewReader(text), "epochs.csv")
		check(t, err)
		lines := bytes.Count(text, []byte("\n")) + 1
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines {
				t.Errorf("problem at line %d of %d: %s", p.Line, lines, p.Reason)
			}
		}
		// What was read is written and read again without loss.
		out := epochFileHeader + "\n"
		for _, e := range epochs {
			out += formatEpoch(e) + "\n"
		}
		again, problems, err := readEpochs(strings.NewReader(out), "again")
		check(t, err)
		for i := range epochs {
			epochs[i].Line = i + 2 // rows that could not be used are not written again
		}
		equal(t, again, epochs)
		equal(t, unreadableLines(problems), []Problem(nil))
	})
}

// unreadableLines returns the problems without those of valid lines in the wrong order.
func unreadableLines(problems []Problem) []Problem {
	return slices.DeleteFunc(problems, func(p Problem) bool {
		return strings.HasPrefix(p.Reason, "epoch ") || strings.HasPrefix(p.Reason, "step ")
	})
}

func FuzzReadSteps(f *testing.F) {
	f.Add([]byte(`{"rank":0,"world_size":1}` + "\n" + `{"epoch":1,"step":1,"loss":null}` + "\n" + `{"ep`))
	f.Add([]byte(`{"step":1,"loss":"+Inf"}` + "\n" + `{"step":1}` + "\n[]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		worker, steps, problems, err := readSteps(bytes.NewReader(text), "steps")
		check(t, err)
		lines := bytes.Count(text, []byte("\n")) + 1
		// Who wrote it is found without parsing the steps, too; a step's start may hide what is wrong inside it.
		workers, shape, err := readWorkers(bytes.NewReader(text), "steps")
		check(t, err)
		var again Worker // ReadWorkers leaves out those without a world size
		if n := len(workers); n > 0 && worker.WorldSize > 0 {
			again = workers[n-1]
		} else {
			worker = again
		}
		shape, problems = unreadableLines(shape), unreadableLines(problems)
		if again != worker && !bytes.Contains(text, []byte(stepLinePrefix)) || len(shape) > len(problems) {
			t.Errorf("worker %+v, expected %+v; %d problems, at most %d", again, worker, len(shape), len(problems))
		}
		if len(steps)+len(problems) > lines {
			t.Errorf("%d steps and %d problems in %d lines", len(steps), len(problems), lines)
		}
		for i := 1; i < len(steps); i++ {
			if steps[i].Step <= steps[i-1].Step {
				t.Errorf("step %d after step %d", steps[i].Step, steps[i-1].Step)
			}
		}
	})
}

// TestStepLine compares the encoding of steps with that of encoding/json. A field that one of them
// lacks is a difference.
func TestStepLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Float64(), rapid.Just(0.0), rapid.Just(1e-6), rapid.Just(9.5e-7), rapid.Just(1e-9), rapid.Just(1.5e-10), rapid.Just(1e21), rapid.Just(-3e100))
		var s Step
		v := reflect.ValueOf(&s).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Float64:
				f.SetFloat(number.Draw(t, "number"))
			case reflect.Bool:
				f.SetBool(rapid.Bool().Draw(t, "bool"))
			default:
				f.SetInt(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, "integer"))
			}
		}
		want, err := json.Marshal(s)
		got, ok := s.appendJSON(nil)
		if err != nil || !ok || string(got) != string(want) {
			t.Errorf("got %s, %v; want %s, %v", got, ok, want, err)
		}
	})
}
