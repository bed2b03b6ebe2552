package course

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"gonum.org/v1/gonum/stat"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/scaling"
	"lockstep/pkg/train"
	"lockstep/pkg/tune"
)

// checkAnswerValues returns an error if an answer is wrong or cannot be judged. The error does not contain the
// right value.
func (e *answerEvidence) checkAnswerValues(ctx context.Context, answer map[string]any) error {
	t := e.task
	switch t.Kind {
	case KindNumbers:
		if err := checkAnswerKeys(answer, slices.Sorted(maps.Keys(t.Numbers))); err != nil {
			return err
		}
		err := checkAnswerParts(t.Numbers, func(key string, n Number) error { return e.checkNumber(ctx, key, n, answer[key]) })
		if errors.Is(err, errNotAnswered) {
			err = fmt.Errorf("%w (if you have: in Go, 3/4 is 0, because both are integers)", err)
		}
		return err
	case KindChoice:
		if err := checkAnswerKeys(answer, slices.Sorted(maps.Keys(t.Choices))); err != nil {
			return err
		}
		return checkAnswerParts(t.Choices, func(key string, c Choice) error { return e.checkChoice(key, c, answer[key]) })
	}
	return nil
}

// errNotAnswered is the error of an answer that still has its initial value.
var errNotAnswered = errors.New("write your answer in the cell above, and run both cells")

// checkAnswerParts calls judge for every part of an answer. Its error lists all wrong parts, because one
// part is often computed from another.
func checkAnswerParts[T any](parts map[string]T, judge func(key string, part T) error) error {
	var missing []string
	var wrong []error
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		switch err := judge(key, parts[key]); {
		case errors.Is(err, errNotAnswered):
			missing = append(missing, key)
		case err != nil:
			wrong = append(wrong, err)
		}
	}
	if missing != nil {
		wrong = append(wrong, fmt.Errorf("no answer for %s: %w", english.JoinAnd(missing), errNotAnswered))
	}
	return errors.Join(wrong...)
}

func checkAnswerKeys(answer map[string]any, keys []string) error {
	for _, key := range slices.Sorted(maps.Keys(answer)) {
		if !slices.Contains(keys, key) {
			return fmt.Errorf("unknown key %q%s; the answer has %s", key, nearest.Hint(key, keys), english.QuoteNames(keys))
		}
	}
	for _, key := range keys {
		if _, ok := answer[key]; !ok {
			return fmt.Errorf("no answer for %q: the answer has %s", key, english.QuoteNames(keys))
		}
	}
	return nil
}

func (e *answerEvidence) checkNumber(ctx context.Context, key string, n Number, answer any) error {
	v, err := answerToFloat(answer)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if v == 0 {
		return errNotAnswered
	}
	if n.Metric == largestBatch {
		return checkLargestBatch(ctx, key, n, v, e.task.Tolerance)
	}
	right, counted, err := e.rightValues(n, scaling.DefaultRule())
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if isWithinTolerance(v, right, e.task.Tolerance) {
		return nil
	}
	wrong := fmt.Sprintf("%s = %s is not what your runs give", key, english.FormatNumber(v))
	if strings.HasPrefix(n.Config, "published/") {
		wrong = fmt.Sprintf("%s = %s is not what the table gives", key, english.FormatNumber(v))
	}
	tolerance := e.task.Tolerance
	inverse, percent := make([]float64, len(right)), make([]float64, len(right))
	for i, r := range right {
		inverse[i], percent[i] = 1/r, 100*r
	}
	all := scaling.DefaultRule()
	all.DropFirst = 0
	withFirst, _, err := e.rightValues(n, all)
	switch {
	case err == nil && isWithinTolerance(v, withFirst, tolerance):
		return fmt.Errorf("%s: it seems to include epoch 1, which does not count, because it builds structures and fills caches; %s", wrong, counted)
	case isWithinTolerance(v, inverse, tolerance):
		return fmt.Errorf("%s: numerator and denominator are exchanged; it is %s", wrong, metricNames[n.Metric])
	case isWithinTolerance(v, percent, tolerance):
		return fmt.Errorf("%s: it is in percent; give a fraction, where 1 is 100 %%", wrong)
	}
	of := n.Config
	if n.Series != "" {
		of = fmt.Sprintf("series %q of %s", n.Series, n.Config)
	}
	return fmt.Errorf("%s, within %s: it is %s, with %s of %s; %s", wrong, english.FormatPercent(tolerance), metricNames[n.Metric], english.FormatCount(n.Workers, "worker"), of, counted)
}

// isWithinTolerance reports whether v is near one of the right values. tolerance is relative to that value.
func isWithinTolerance(v float64, right []float64, tolerance float64) bool {
	return slices.ContainsFunc(right, func(r float64) bool { return math.Abs(v-r) <= tolerance*math.Abs(r) })
}

// rightValues returns all values that are right for the number n: with the mean or the median over
// the counted epochs (of their seconds or of their rates), and over repeated runs. counted describes
// which epochs count.
func (e *answerEvidence) rightValues(n Number, rule scaling.Rule) (values []float64, counted string, err error) {
	study, err := scaling.FromRuns(e.runs[n.Config])
	if err != nil {
		return nil, "", err
	}
	for _, epochs := range []string{"mean", "median"} {
		for _, repeats := range []string{"median", "mean"} {
			rule.Epochs, rule.Repeats = epochs, repeats
			s, err := study.WithRule(rule)
			if err != nil {
				return nil, "", err
			}
			explained, err := n.explainValue(s)
			if err != nil {
				return nil, "", err
			}
			for _, item := range explained.Items {
				values = append(values, item.Result.Value)
				if epochs == "mean" {
					values = append(values, item.Result.Value*meanRateFactor(item))
				}
			}
			if counted == "" {
				counted = describeCountedEpochs(explained.Items[0].Inputs)
			}
		}
	}
	return values, counted, nil
}

// explainValue explains the number's value in n.Series or, if that is empty, in the whole study.
func (n Number) explainValue(s *scaling.Study) (*scaling.Explanation, error) {
	if n.Series == "" {
		return s.Explain(n.Metric, n.Workers)
	}
	return s.ExplainSeries(n.Series, n.Metric, n.Workers)
}

// meanRateFactor returns the factor by which item changes if throughput is the mean of the epochs' rates,
// in place of all samples divided by all seconds. On a busy machine, the two differ by a few percent.
func meanRateFactor(item scaling.ExplainedNumber) float64 {
	factor, seconds := 1.0, 0.0
	samples, total, rates := map[string]float64{}, map[string]float64{}, map[string][]float64{} // by role
	for _, in := range item.Inputs {
		switch {
		case !in.Counted:
		case in.Name == "seconds": // precedes the samples or the rate of the same epoch
			seconds = in.Value
		case in.Name == "samples" && in.Epoch > 0, in.Name == "samples_per_second" && seconds > 0:
			n := in.Value
			if in.Name != "samples" {
				n *= seconds
			}
			samples[in.Role], total[in.Role] = samples[in.Role]+n, total[in.Role]+seconds
			rates[in.Role] = append(rates[in.Role], n/seconds)
		}
	}
	for role, each := range rates {
		f := stat.Mean(each, nil) / (samples[role] / total[role])
		if strings.HasPrefix(role, "baseline") {
			f = 1 / f
		}
		factor *= f
	}
	return factor
}

func describeCountedEpochs(inputs []scaling.Input) string {
	var epochs []int
	for _, in := range inputs {
		if in.Counted && in.Epoch > 0 {
			epochs = append(epochs, in.Epoch)
		}
	}
	if epochs == nil {
		return "it is a number of the whole run"
	}
	slices.Sort(epochs)
	epochs = slices.Compact(epochs)
	if len(epochs) == 1 {
		return fmt.Sprintf("epoch %d counts", epochs[0])
	}
	return fmt.Sprintf("epochs %d to %d count, by their mean or median", epochs[0], epochs[len(epochs)-1])
}

// checkLargestBatch determines the largest batch on this machine and compares v with it. tolerance
// is relative. It is needed because the memory of a batch differs a little between processors.
func checkLargestBatch(ctx context.Context, key string, n Number, v, tolerance float64) error {
	bytes, err := humanize.ParseBytes(n.Memory)
	if err != nil {
		return err
	}
	config, err := train.Named(n.Config)
	if err != nil {
		return err
	}
	search, err := tune.FindLargestBatch(ctx, config, tune.BatchOptions{Workers: 1, Memory: int64(bytes)})
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if !isWithinTolerance(v, []float64{float64(search.Largest)}, tolerance) {
		return fmt.Errorf("%s = %s is not the largest batch of %s that fits into %s: read the last line of tune.FindLargestBatch or lockstep batchsize", key, english.FormatNumber(v), n.Config, n.Memory)
	}
	return nil
}

func answerToFloat(answer any) (float64, error) {
	if n, ok := answer.(json.Number); ok {
		return n.Float64()
	}
	v := reflect.ValueOf(answer)
	switch {
	case v.IsValid() && v.CanFloat():
		if f := v.Float(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
		return 0, fmt.Errorf("got %v, want a finite number; the rows or runs that you chose may be none", answer)
	case v.IsValid() && v.CanInt():
		return float64(v.Int()), nil
	case v.IsValid() && v.CanUint():
		return float64(v.Uint()), nil
	case v.IsValid() && v.Kind() == reflect.String:
		return 0, fmt.Errorf("got the text %q, want a number: write it without quotes", v.String())
	}
	return 0, fmt.Errorf("got %T, want a number", answer)
}

func (e *answerEvidence) checkChoice(key string, c Choice, answer any) error {
	options := slices.Sorted(maps.Keys(c.Options))
	chosen, ok := answer.(string)
	switch {
	case !ok:
		return fmt.Errorf("%s: got %T, want one of the texts %s", key, answer, english.QuoteNames(options))
	case chosen == "":
		return errNotAnswered
	case !slices.Contains(options, chosen):
		return fmt.Errorf("%s: unknown option %q%s; use one of %s", key, chosen, nearest.Hint(chosen, options), english.QuoteNames(options))
	}
	if c.Larger != nil {
		return e.checkLargestChoice(key, c, chosen, options)
	}
	if slices.Contains(c.Answer, chosen) || slices.Contains(c.Hashes, hashOption(e.task.ID, key, chosen)) {
		return nil
	}
	return fmt.Errorf("%s: your choice %q (%s) is not right", key, chosen, c.Options[chosen])
}

// checkLargestChoice returns an error if the number of another config is larger than the number of
// the chosen config by more than the tolerance. Numbers within the tolerance count as equal, so that
// several choices may be right.
func (e *answerEvidence) checkLargestChoice(key string, c Choice, chosen string, options []string) error {
	largest := map[string]float64{}
	for _, option := range options {
		n := *c.Larger
		n.Config = option
		values, _, err := e.rightValues(n, scaling.DefaultRule())
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		largest[option] = slices.Max(values)
	}
	for _, option := range options {
		if largest[chosen] < largest[option]*(1-e.task.Tolerance) {
			return fmt.Errorf("%s: your runs say otherwise: compare the %s of both studies at %s", key, c.Larger.Metric, english.FormatCount(c.Larger.Workers, "worker"))
		}
	}
	return nil
}

// hashOption returns the hash that a release stores in place of a right option. It hides the answer from
// readers, but not from a student who tries all options.
func hashOption(task, key, option string) string {
	sum := sha256.Sum256([]byte(task + "\n" + key + "\n" + option))
	return hex.EncodeToString(sum[:])
}
