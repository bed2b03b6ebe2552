package programfile

import (
	"fmt"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/recordtest"
)

// TestHuggingFaceTrainingTime checks for how many epochs train_runtime counts.
// The numbers of the states follow from the Trainer's code: train_loss is the
// sum of the losses of this session's steps divided by all steps, also those of
// earlier sessions, and train_samples_per_second counts all planned steps.
func TestHuggingFaceTrainingTime(t *testing.T) {
	const end = `"train_runtime": 60.0, "train_samples_per_second": 100.0`
	for _, c := range []struct {
		name           string
		maxSteps       int
		history        string
		seconds        float64 // 0: unknown
		epochs         float64
		rate           float64 // 0: unknown
		problem, given string  // parts of the problem and of the assumption
	}{
		{
			"two epochs and a half", 250,
			`{"epoch": 1.0, "loss": 0.8, "step": 100}, {"epoch": 2.0, "loss": 0.6, "step": 200},
			{"epoch": 2.5, "step": 250, "train_loss": 0.66, ` + end + `}`,
			60, 2.5, 100, "", "covers 2.5 epochs",
		},
		{
			"epochs without a logged value", 400,
			`{"epoch": 2.0, "loss": 0.8, "step": 200}, {"epoch": 4.0, "loss": 0.6, "step": 400},
			{"epoch": 4.0, "step": 400, "train_loss": 0.7, ` + end + `}`,
			60, 4, 100, "", "covers 4 epochs",
		},
		{
			"ended by max_steps in the first epoch", 40,
			`{"epoch": 0.4, "loss": 0.8, "step": 40}, {"epoch": 0.4, "step": 40, "train_loss": 0.8, ` + end + `}`,
			60, 0.4, 100, "", "covers 0.4 epochs",
		},
		{ // resumed at step 200: train_loss is 0.5·200/400
			"resumed", 400,
			`{"epoch": 1.0, "loss": 0.8, "step": 100}, {"epoch": 2.0, "loss": 0.6, "step": 200},
			{"epoch": 3.0, "loss": 0.5, "step": 300}, {"epoch": 4.0, "loss": 0.5, "step": 400},
			{"epoch": 4.0, "step": 400, "train_loss": 0.25, ` + end + `}`,
			0, 0, 0, "resumed", "",
		},
		{
			"stopped early", 400,
			`{"epoch": 1.0, "loss": 0.8, "step": 100}, {"epoch": 2.0, "loss": 0.6, "step": 200},
			{"epoch": 2.0, "step": 200, "train_loss": 0.7, ` + end + `}`,
			60, 2, 0, "all planned steps", "covers 2 epochs",
		},
		{
			"no train_loss", 200,
			`{"epoch": 2.0, "loss": 0.7, "step": 200}, {"epoch": 2.0, "step": 200, ` + end + `}`,
			60, 2, 100, "", "not resumed",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := fmt.Sprintf(`{"max_steps": %d, "log_history": [%s]}`, c.maxSteps, c.history)
			parts, report := recordtest.ReadAndCheckFormat(t, formatNamed(t, huggingFaceKind), "trainer_state.json", []byte(text))
			if len(parts) != 1 {
				t.Fatalf("got %d runs, want 1", len(parts))
			}
			run := parts[0].Run
			seconds, _ := run.Info.Config[record.TrainingSecondsKey].(float64)
			epochs, _ := run.Info.Config[record.TrainingEpochsKey].(float64)
			rate := 0.0
			for _, curve := range run.Curves {
				if curve.Name == "train_samples_per_second" && c.rate == 0 {
					t.Error("a curve has the rate that cannot be used")
				}
			}
			for _, trial := range run.Trials {
				rate += trial.Rate
			}
			if seconds != c.seconds || epochs != c.epochs || rate != c.rate {
				t.Errorf("got %g s for %g epochs and %g samples/s, want %g s for %g and %g", seconds, epochs, rate, c.seconds, c.epochs, c.rate)
			}
			problems := fmt.Sprint(report.Unused)
			if c.problem == "" && len(report.Unused) > 0 || !strings.Contains(problems, c.problem) {
				t.Errorf("got problems %s, want %q", problems, c.problem)
			}
			if assumed := strings.Join(report.Assumed, "\n"); !strings.Contains(assumed, c.given) {
				t.Errorf("got assumptions %q, want %q", assumed, c.given)
			}
		})
	}
}
