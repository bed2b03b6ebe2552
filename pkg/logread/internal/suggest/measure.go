package suggest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
)

// nameMeasures names the measured values whose words and values show what they are.
func (c *candidate) nameMeasures() {
	if len(c.lines) < 2 && !c.hasField(fields.Epoch) && !c.hasField(fields.Step) {
		return // settings
	}
	train := slices.ContainsFunc(c.numbers, func(n describedNumber) bool { // a number is labeled as one of the training
		return n.ownPart == trainPart && n.field != nil && n.field.OfEpoch != nil && n.field.Kind != fields.Seconds
	})
	for i := range c.numbers {
		n := &c.numbers[i]
		if n.as != "" || n.vetoed || n.ofTotal || n.inner && (n.unit != timeUnitKind && n.unit != rateUnit || i > 0 && c.numbers[i-1].unit == timeUnitKind) {
			continue
		}
		labeled := n.part != "" || !train && n.mentioned != valPart && n.mentioned != testPart && (c.hasField(fields.Epoch) || c.hasField(fields.Step) || c.hasEvaluation())
		var d decision
		switch {
		case n.unit == rateUnit:
			d = c.decideRate(n)
		case n.unit == epochUnit, n.unit == stepUnit, n.unit == timeUnitKind, n.field != nil && n.field.Kind == fields.Seconds && n.unit == noUnit:
			d = c.decideTime(n)
		case n.field == nil || n.token.clock || n.name.unit != "":
		case n.field.Kind == fields.Fraction && (!n.isNamed(fields.Accuracy) || labeled && c.isTrainingAccuracy(i)):
			d = n.decideFraction()
		case n.isNamed(fields.TrainLoss) && labeled, n.isNamed(fields.ValLoss):
			if n.part != "" || c.hasField(fields.Step) && c.hasField(fields.Epoch) || declineRatio(n.values) < 1 || c.fallingShare(n) > 0.5 { // otherwise perhaps that of an evaluation
				d = c.decideLoss(n)
			}
		case n.isNamed(fields.LearningRate) && n.unit == noUnit && n.min() >= 0 && n.max() <= 10 && (!n.whole || n.max() == 0),
			n.isNamed(fields.SamplesPerSecond) && n.unit == noUnit && n.min() > 0 && strings.Contains(n.words, " ") && !n.describesEvaluation():
			d = decision{as: n.field.Name, why: n.describeName()}
		}
		if d.as != "" && !c.hasField(d.as) {
			n.decision = d
		}
	}
}

func (n *describedNumber) describesEvaluation() bool { return n.part == valPart || n.part == testPart }

// isTrainingAccuracy reports whether number i, an accuracy, is measured in the training. It is if
// it is labeled as such, follows the training loss, or is in a line about a step of an epoch, or if
// the line also contains a validation accuracy.
func (c *candidate) isTrainingAccuracy(i int) bool {
	k := i - 1
	for k > 0 && c.numbers[k].as == "" && len(c.numbers[k].texts) < 2 { // such as that of a device
		k--
	}
	return c.numbers[i].part == trainPart || k >= 0 && c.numbers[k].as == fields.TrainLoss || c.hasField(fields.Step) && c.hasField(fields.Epoch) ||
		slices.ContainsFunc(c.numbers, func(n describedNumber) bool { return n.isNamed(fields.ValAccuracy) })
}

// hasEvaluation reports whether a number is labeled as part of an evaluation. If so, the unlabeled
// numbers are not part of it, even if the line has no epoch or step.
func (c *candidate) hasEvaluation() bool {
	return slices.ContainsFunc(c.numbers, func(n describedNumber) bool { return n.describesEvaluation() })
}

// sortedWithoutNaN returns the values other than NaN in ascending order, or a single NaN if there
// are none.
func sortedWithoutNaN(values []float64) []float64 {
	kept := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(kept) == 0 {
		return []float64{math.NaN()}
	}
	slices.Sort(kept)
	return kept
}

func median(values []float64) float64 {
	kept := sortedWithoutNaN(values)
	return kept[len(kept)/2]
}

func (n *describedNumber) min() float64 { return sortedWithoutNaN(n.values)[0] }

func (n *describedNumber) max() float64 { kept := sortedWithoutNaN(n.values); return kept[len(kept)-1] }

// declineRatio returns the ratio of the median of the last quarter of values to the median of the
// first quarter.
func declineRatio(values []float64) float64 {
	k := max(1, len(values)/4)
	return median(values[len(values)-k:]) / median(values[:k])
}

// fallingShare returns the fraction of epochs in which n decreased or, if the lines have no epoch,
// the fraction of lines.
func (c *candidate) fallingShare(n *describedNumber) float64 {
	epoch, down, all := c.findField(fields.Epoch), 0.0, 0.0
	c.forEachLinePair(func(i, j int) {
		if epoch == nil || epoch.values[j] > epoch.values[i] {
			all++
			if n.values[j] < n.values[i] {
				down++
			}
		}
	})
	return down / all
}

// decideLoss decides whether a number whose name means a loss is one. If the name is ambiguous, the
// number must fall from epoch to epoch and by at least 5 % in total, which durations do not.
func (c *candidate) decideLoss(n *describedNumber) decision {
	if n.unit != noUnit || n.whole && len(n.values) > 1 || n.weak && !(c.fallingShare(n) > 0.6 && declineRatio(n.values) < 0.95 && n.max() < 100) {
		return decision{}
	}
	return decision{as: n.field.Name, why: n.describeName() + map[bool]string{true: ", and it falls"}[n.weak]}
}

// decideFraction decides whether a number whose name means a fraction is one, from 0 to 1 or as a
// percentage.
func (n *describedNumber) decideFraction() decision {
	low, high := n.min(), n.max()
	d := decision{as: n.field.Name, why: n.describeName()}
	switch {
	case !(low >= 0) || !(high <= 100) || n.unit != noUnit && n.unit != percentUnit:
		return decision{}
	case n.unit == percentUnit:
		d.why += ", a percentage"
	case high <= 1:
		d.why += ", from 0 to 1"
	case n.whole && len(n.texts) < 2:
		return decision{} // such as a number of correct answers
	default:
		d.scale = "%"
		d.why += ", up to 100: percent without its sign"
	}
	return d
}

// decideRate decides whether a number with a unit such as samples/s is the throughput. The words
// before it may only mean a speed.
func (c *candidate) decideRate(n *describedNumber) decision {
	if n.describesEvaluation() || !(n.min() > 0) {
		return decision{}
	}
	rates := 0
	for i := range c.numbers {
		o := &c.numbers[i]
		if o.unit == rateUnit {
			rates++
		} else if o.as == "" && o.at < n.at && (o.isNamed(fields.Rank) || o.namesDevice() || o.isNamed(fields.Time) && !c.hasField(fields.Step)) {
			return decision{} // of one worker, or perhaps that of an evaluation, whose time the line has too
		}
	}
	isOther := func(w string) bool {
		return !isNoise(w) && datasetPart(w) == "" && !isOneOf(w, "speed throughput rate thr thru total global aggregate")
	}
	if rates > 1 || !n.isNamed(fields.SamplesPerSecond) && slices.ContainsFunc(strings.Fields(n.words), isOther) {
		return decision{}
	}
	return decision{as: fields.SamplesPerSecond, why: "followed by a unit of samples per second"}
}

// namesDevice reports whether the number follows the word for one of several workers, as in "on rank 0".
func (n *describedNumber) namesDevice() bool {
	words := strings.Fields(n.words)
	return len(words) > 0 && isOneOf(words[len(words)-1], "rank gpu device worker process node")
}

func (n *describedNumber) secondsAt(i int) float64 {
	switch {
	case n.token.unit != "": // the values are seconds
		return n.values[i]
	case n.name.unit != "":
		return n.values[i] * secondsPer(n.name.unit)
	case n.unit == timeUnitKind || n.unit == epochUnit || n.unit == stepUnit:
		unit, _, _ := strings.Cut(n.unitText, "/")
		unit, _, _ = strings.Cut(unit, " ")
		return n.values[i] * secondsPer(unit)
	}
	return n.values[i]
}

// lineTiming describes the time between consecutive lines of a shape.
type lineTiming struct {
	epoch   float64 // median seconds per epoch by the clock; NaN if unknown
	step    float64 // mean seconds per step by the clock; NaN if unknown
	rising  bool    // each value is larger than the one before
	falling bool    // a value is smaller than the one before
	growth  float64 // median growth of the values per epoch
	median  float64 // of the values, in seconds
	clocked bool    // the growth is not larger than the clock allows
}

// maxClockError is the maximum error, in seconds, of the difference between two time stamps in
// whole seconds.
const maxClockError = 1.5

func (c *candidate) measureTiming(n *describedNumber) lineTiming {
	epoch, step := c.findField(fields.Epoch), c.findField(fields.Step)
	p := lineTiming{rising: true, clocked: true, step: math.NaN()}
	var growths, perEpoch, values []float64
	for i := range n.values {
		values = append(values, n.secondsAt(i))
	}
	clock, steps := 0.0, 0.0
	c.forEachLinePair(func(i, j int) {
		dt, v, epochs := c.lines[j].clock-c.lines[i].clock, values[j]-values[i], 1.0
		if epoch != nil {
			epochs = epoch.values[j] - epoch.values[i]
		}
		if step != nil && (epochs == 0 || epoch == nil) {
			if d := step.values[j] - step.values[i]; d > 0 && dt >= 0 {
				clock, steps = clock+dt, steps+d
			}
		}
		if epochs < 0 {
			return
		}
		p.rising, p.falling = p.rising && v > 0, p.falling || v < 0
		p.clocked = p.clocked && !(v > 1.2*dt+maxClockError)
		if epochs > 0 {
			growths = append(growths, v/epochs)
			perEpoch = append(perEpoch, dt/epochs)
		}
	})
	p.median, p.growth, p.epoch = median(values), median(growths), median(perEpoch)
	if clock > 5*maxClockError {
		p.step = clock / steps
	}
	return p
}

// decideTime decides what a number means whose name or unit is that of a time.
func (c *candidate) decideTime(n *describedNumber) decision {
	named := n.field != nil && n.field.Kind == fields.Seconds
	if n.describesEvaluation() || n.isNamed(fields.ValSeconds) || n.field != nil && !named || !named && (!n.bare || n.token.clock) || !(n.min() >= 0) || c.hasWord("load", "dataload") {
		return decision{}
	}
	if n.words == "total" && n.unit == noUnit {
		return decision{} // perhaps a total of losses
	}
	p := c.measureTiming(n)
	why := "a time without a name"
	if named {
		why = n.describeName()
	} else if n.unit != timeUnitKind {
		why = fmt.Sprintf("followed by %q", n.unitText)
	}
	decide := func(field, text string) decision {
		d := decision{as: field, why: why + text}
		if n.unit == noUnit && secondsPer(n.name.unit) != 1 {
			d.scale = n.name.unit
		}
		return d
	}
	trains := slices.ContainsFunc(c.numbers, func(o describedNumber) bool { return o.isNamed(fields.TrainLoss) || o.part == trainPart })
	perStep := n.isNamed(fields.StepSeconds) || n.unit == stepUnit
	perEpoch := n.isNamed(fields.EpochSeconds) && n.words != "seconds" || n.unit == epochUnit
	tooLong := p.median > 1.05*p.epoch+maxClockError
	// Cumulative times rise per line by about as much as from the start to the first line.
	first := 1.0
	if epoch := c.findField(fields.Epoch); epoch != nil {
		first = max(epoch.values[0], 1)
	}
	words := strings.NewReplacer("cum", "total", "since", "total").Replace(n.words)
	whole := n.isNamed(fields.Elapsed) && strings.Contains(words, "total")
	values := slices.DeleteFunc(slices.Clone(n.values), func(v float64) bool { return v == 0 })
	cumulative := p.rising && p.clocked && len(n.values) > 1 && n.secondsAt(0) <= 2*first*p.growth
	switch {
	case c.hasField(fields.Step):
		ratio := p.median / p.step
		switch {
		case perEpoch:
		case perStep && !(ratio < 0.33) && !(ratio > 3):
			return decide(fields.StepSeconds, "")
		case !perStep && ratio > 0.5 && ratio < 1.6:
			return decide(fields.StepSeconds, ", and it agrees with the time stamps: the time of a step")
		}
	case perStep:
		if c.hasField(fields.Epoch) && !(p.median > p.epoch+maxClockError) {
			return decide(fields.StepSeconds, "")
		}
	case cumulative && len(n.values) > 2 && named:
		return decide(fields.Elapsed, ", and it rises by about as much in each epoch: the time since the start")
	case whole, cumulative && (len(n.values) > 2 || !(p.epoch > 0)):
	case p.epoch > 2*maxClockError:
		if !tooLong && p.median >= 0.3*p.epoch-maxClockError {
			return decide(fields.EpochSeconds, ", and it agrees with the time stamps: the time of the epoch")
		}
	case n.part == "" && c.hasEvaluation() && !trains, n.part == "" && !c.hasEvaluation() && !c.hasField(fields.Epoch) && !strings.Contains(n.words, "epoch"):
	case len(values) >= 5 && !p.falling && slices.Max(values) >= 2*slices.Min(values),
		len(values) >= 5 && p.rising && n.isNamed(fields.Time, fields.Elapsed) && slices.Max(values) >= 1.05*slices.Min(values): // perhaps the time since the start
	case perEpoch || len(n.values) > 1 && (named || c.countUnnamedTimes() == 1):
		return decide(fields.EpochSeconds, fmt.Sprintf(": the only evidence is the %s", map[bool]string{true: "name", false: "unit"}[named]))
	}
	return decision{}
}

func (c *candidate) countUnnamedTimes() int {
	k := 0
	for i := range c.numbers {
		if n := &c.numbers[i]; n.field == nil && n.bare && n.unit == timeUnitKind && !n.token.clock && !(n.inner && c.numbers[i-1].unit == timeUnitKind) {
			k++
		}
	}
	return k
}
