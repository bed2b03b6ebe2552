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
	if len(c.lines) < 2 && !c.has(fields.Epoch) && !c.has(fields.Step) {
		return // settings
	}
	train := false // a number is labeled as one of the training
	for i := range c.numbers {
		n := &c.numbers[i]
		train = train || n.ownPart == trainPart && n.field != nil && n.field.OfEpoch != nil && n.field.Kind != fields.Seconds
	}
	for i := range c.numbers {
		n := &c.numbers[i]
		unlabeled := n.part == "" && (train || n.mentioned == valPart || n.mentioned == testPart || c.isBelowEvaluation())
		if n.as != "" || n.vetoed || n.ofTotal || n.inner && (n.unit != timeUnit && n.unit != rateUnit || i > 0 && c.numbers[i-1].unit == timeUnit) {
			continue
		}
		var d decision
		switch {
		case n.unit == rateUnit:
			d = c.rate(n)
		case n.unit == epochUnit, n.unit == stepUnit, n.unit == timeUnit, n.field != nil && n.field.Kind == fields.Seconds && n.unit == noUnit:
			d = c.time(n)
		case n.field == nil || n.token.clock || n.name.unit != "":
		case n.field.Kind == fields.Fraction && (!n.isNamed(fields.Accuracy) || !unlabeled && c.isOfTraining(i)):
			d = n.fraction()
		case n.isNamed(fields.TrainLoss) && !unlabeled, n.isNamed(fields.ValLoss):
			if d = n.loss(); n.part == "" && !c.has(fields.Step) && !(declines(n.values) < 1) && !c.fallsInMost(n) {
				d = decision{} // perhaps that of an evaluation
			}
		case n.isNamed(fields.LearningRate) && n.unit == noUnit && n.min() >= 0 && n.max() <= 10 && (!n.whole || n.max() == 0):
			d = decision{as: fields.LearningRate, why: n.quote()}
		case n.isNamed(fields.SamplesPerSecond) && n.unit == noUnit && n.min() > 0 && strings.ContainsAny(n.words, " ") && n.part != valPart && n.part != testPart:
			d = decision{as: fields.SamplesPerSecond, why: n.quote()}
		}
		if d.as != "" && !c.has(d.as) {
			n.decision = d
		}
	}
	for i := range c.numbers {
		if n := &c.numbers[i]; n.as == "" && n.isNamed(fields.Samples) && n.unit == noUnit && n.whole && !c.has(fields.Samples) && c.isSamples(n) {
			n.is(fields.Samples, "%s, and it is the rate times the seconds", n.quote())
		}
	}
}

// isOfTraining reports whether the accuracy of number i is one of the training: it has this label, follows the
// loss of the training, is in a line of a step, or the line has a value of the validation too.
func (c *candidate) isOfTraining(i int) bool {
	k := i - 1
	for k > 0 && c.numbers[k].as == "" && len(c.numbers[k].texts) < 2 { // such as that of a device
		k--
	}
	return c.numbers[i].part == trainPart || k >= 0 && c.numbers[k].as == fields.TrainLoss || c.has(fields.Step) ||
		slices.ContainsFunc(c.numbers, func(n number) bool { return n.isNamed(fields.ValAccuracy) })
}

// isBelowEvaluation reports whether the lines have no number of an epoch or step and follow a line such as
// "Evaluating ...".
func (c *candidate) isBelowEvaluation() bool {
	return !c.has(fields.Epoch) && !c.has(fields.Step) && slices.ContainsFunc(c.lines, func(p place) bool { return p.evaluation })
}

// evaluates reports whether the line names only values of an evaluation.
func (c *candidate) evaluates() bool {
	evaluation := false
	for i := range c.numbers {
		n := &c.numbers[i]
		if n.isNamed(fields.TrainLoss) || n.ownPart == trainPart || n.part == trainPart {
			return false
		}
		evaluation = evaluation || n.mentioned == valPart || n.mentioned == testPart
	}
	return evaluation
}

// ascending returns the values that are numbers in rising order, or NaN alone.
func ascending(values []float64) []float64 {
	kept := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(kept) == 0 {
		return []float64{math.NaN()}
	}
	slices.Sort(kept)
	return kept
}

// median returns the median of values that are numbers, or NaN.
func median(values []float64) float64 {
	kept := ascending(values)
	return kept[len(kept)/2]
}

// min returns the smallest value that is a number, or NaN.
func (n *number) min() float64 { return ascending(n.values)[0] }

// max returns the largest value that is a number, or NaN.
func (n *number) max() float64 { kept := ascending(n.values); return kept[len(kept)-1] }

// falls reports whether most values are smaller than the one before, and the last ones by a twentieth than the
// first ones. Times that vary do not fall so.
func falls(values []float64) bool {
	down := 0
	for i := range values {
		if i > 0 && values[i] < values[i-1] {
			down++
		}
	}
	return 3*down >= 2*(len(values)-1) && declines(values) < 0.95
}

// declines returns the median of the last values divided by that of the first ones.
func declines(values []float64) float64 {
	k := max(1, len(values)/4)
	return median(values[len(values)-k:]) / median(values[:k])
}

// fallsInMost reports whether the number falls from more than half of the epochs to the next.
func (c *candidate) fallsInMost(n *number) bool {
	epoch, down, all := c.find(fields.Epoch), 0, 0
	c.eachPair(func(i, j int) {
		if epoch == nil || epoch.values[j] > epoch.values[i] {
			all++
			if n.values[j] < n.values[i] {
				down++
			}
		}
	})
	return 2*down > all
}

// loss returns the decision about a number that is named like a loss.
func (n *number) loss() decision {
	switch {
	case n.unit != noUnit, n.whole && len(n.values) > 1:
		return decision{}
	case n.weak && (!falls(n.values) || !(n.max() < 100)):
		return decision{}
	case n.weak:
		return decision{as: n.field.Name, why: n.quote() + ", and it falls"}
	}
	return decision{as: n.field.Name, why: n.quote()}
}

// fraction returns the decision about a number that is named like a share: from 0 to 1, or a percentage.
func (n *number) fraction() decision {
	low, high := n.min(), n.max()
	d := decision{as: n.field.Name, why: n.quote()}
	switch {
	case !(low >= 0) || !(high <= 100) || n.unit != noUnit && n.unit != percentUnit:
		return decision{}
	case n.unit == percentUnit:
		d.why += ", a percentage"
		if n.unitInHeading {
			d.scale = "%"
		}
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

// rate returns the decision about a number with a unit such as samples/s. Words before it may say
// only that it is a speed.
func (c *candidate) rate(n *number) decision {
	if n.part == valPart || n.part == testPart || !(n.min() > 0) {
		return decision{}
	}
	words, rates := strings.Fields(n.words), 0
	for i := range c.numbers {
		o := &c.numbers[i]
		switch {
		case o.unit == rateUnit:
			rates++
		case o.as != "" || o.at > n.at:
		case o.isNamed(fields.Time) && !c.has(fields.Step):
			return decision{} // perhaps that of an evaluation, whose time the line has too
		case o.isNamed(fields.Rank):
			return decision{} // of one worker
		}
	}
	if rates > 1 && !slices.ContainsFunc(words, func(w string) bool { return slices.Contains([]string{"total", "global", "aggregate"}, w) }) {
		return decision{}
	}
	for _, w := range words {
		if !n.isNamed(fields.SamplesPerSecond) && !isNoise(w) && partOf(w) == "" && !slices.Contains([]string{"speed", "throughput", "rate", "thr", "thru", "total", "global", "aggregate"}, w) {
			return decision{}
		}
	}
	return decision{as: fields.SamplesPerSecond, why: "followed by a unit of samples per second"}
}

// isSamples reports whether the number agrees with the rate and the seconds of its line.
func (c *candidate) isSamples(n *number) bool {
	seconds, rate := c.find(fields.EpochSeconds), c.find(fields.SamplesPerSecond)
	if seconds == nil || rate == nil {
		return false
	}
	var ratios []float64
	for i, v := range n.values {
		ratios = append(ratios, rate.values[i]*seconds.seconds(i)/v)
	}
	return math.Abs(median(ratios)-1) < 0.1
}

// seconds returns the value of line i in seconds.
func (n *number) seconds(i int) float64 {
	unit := n.token.unit
	if n.unit == timeUnit && unit == "" || n.unit == epochUnit || n.unit == stepUnit {
		unit = n.unitText
	}
	if n.name.unit != "" {
		unit = n.name.unit
	}
	return n.values[i] * secondsPer(unit)
}

// secondsPer returns the length of a unit of time in seconds.
func secondsPer(unit string) float64 {
	switch strings.ToLower(unit)[:min(len(unit), 2)] {
	case "ms":
		return 1e-3
	case "mi":
		if strings.HasPrefix(strings.ToLower(unit), "milli") {
			return 1e-3
		}
		return 60
	case "us", "µ":
		return 1e-6
	case "m":
		return 60
	case "h", "hr", "ho":
		return 3600
	}
	return 1
}

// pace describes how the lines of a shape follow each other.
type pace struct {
	epoch   float64 // median seconds per epoch by the clock; NaN if unknown
	step    float64 // mean seconds per step by the clock; NaN if unknown
	rising  bool    // the values rise in each group
	growth  float64 // median growth of the values per epoch
	median  float64 // of the values, in seconds
	clocked bool    // the growth is not larger than the clock allows
}

// clockResolution is the error in seconds of the difference of two time stamps without fractions.
const clockResolution = 1.5

// paceOf returns the pace of the number's values, which are times.
func (c *candidate) paceOf(n *number) pace {
	epoch, step := c.find(fields.Epoch), c.find(fields.Step)
	p := pace{rising: true, clocked: true}
	var growths, perEpoch, values []float64
	clock, steps := 0.0, 0.0
	c.eachPair(func(i, j int) {
		dt := c.lines[j].clock - c.lines[i].clock
		v := n.seconds(j) - n.seconds(i)
		epochs := 1.0
		if epoch != nil {
			epochs = epoch.values[j] - epoch.values[i]
		}
		if step != nil && epochs == 0 || step != nil && epoch == nil {
			if d := step.values[j] - step.values[i]; d > 0 && dt >= 0 {
				clock, steps = clock+dt, steps+d
			}
		}
		if epochs < 0 {
			return
		}
		p.rising = p.rising && v > 0
		p.clocked = p.clocked && !(v > 1.2*dt+clockResolution)
		if epochs > 0 {
			growths = append(growths, v/epochs)
			perEpoch = append(perEpoch, dt/epochs)
		}
	})
	for i := range n.values {
		values = append(values, n.seconds(i))
	}
	p.median, p.growth, p.epoch, p.step = median(values), median(growths), median(perEpoch), math.NaN()
	if clock > 5*clockResolution {
		p.step = clock / steps
	}
	return p
}

// time returns the decision about a number that is a time by its name or its unit.
func (c *candidate) time(n *number) decision {
	field := ""
	if n.field != nil {
		field = n.field.Name
	}
	evaluation := n.part == valPart || n.part == testPart || field == fields.ValSeconds
	named := n.field != nil && n.field.Kind == fields.Seconds
	if n.remains || n.loader || n.part == testPart || n.field != nil && !named || !named && !n.bare || !(n.min() >= 0) || !named && n.token.clock {
		return decision{}
	}
	p := c.paceOf(n)
	why := "a time without a name"
	if named {
		why = n.quote()
	} else if n.unit != timeUnit {
		why = fmt.Sprintf("followed by %q", n.unitText)
	}
	decide := func(field, text string) decision {
		d := decision{as: field, why: why + text}
		if scale := n.name.unit; n.unit == noUnit && secondsPer(scale) != 1 {
			d.scale = scale
		}
		return d
	}
	trains := n.part == trainPart || slices.ContainsFunc(c.numbers, func(o number) bool { return o.isNamed(fields.TrainLoss) })
	perStep := field == fields.StepSeconds || n.unit == stepUnit
	perEpoch := field == fields.EpochSeconds && n.words != "seconds" || n.unit == epochUnit
	agreesWithEpoch := p.median <= 1.05*p.epoch+clockResolution && p.median >= 0.3*p.epoch-clockResolution
	// Cumulative times rise in each line by about as much as from the start to the first line.
	first := 1.0
	if epoch := c.find(fields.Epoch); epoch != nil {
		first = max(epoch.values[0], 1)
	}
	whole := field == fields.Elapsed && (strings.Contains(n.words, "total") || strings.Contains(n.words, "cum") || strings.Contains(n.words, "since"))
	cumulative := p.rising && p.clocked && len(n.values) > 1 && n.seconds(0) <= 2*first*p.growth
	switch {
	case c.has(fields.Step):
		ratio := p.median / p.step
		switch {
		case evaluation || perEpoch:
		case perStep && !(ratio < 0.33) && !(ratio > 3):
			return decide(fields.StepSeconds, "")
		case !perStep && ratio > 0.5 && ratio < 1.6:
			return decide(fields.StepSeconds, ", and it agrees with the time stamps: the time of a step")
		}
	case evaluation:
		if (named || n.unit == timeUnit) && !perStep && !cumulative && !(p.median > 1.05*p.epoch+clockResolution) {
			return decide(fields.ValSeconds, ", of the evaluation")
		}
	case perStep:
		if !(p.median > p.epoch+clockResolution) {
			return decide(fields.StepSeconds, "")
		}
	case cumulative && len(n.values) > 2 && named:
		return decide(fields.Elapsed, ", and it rises by about as much in each epoch: the time since the start")
	case whole, cumulative && (len(n.values) > 2 || !(p.epoch > 0)):
	case p.epoch == p.epoch && p.epoch > 2*clockResolution:
		if agreesWithEpoch {
			return decide(fields.EpochSeconds, ", and it agrees with the time stamps: the time of the epoch")
		}
	case n.part == "" && (c.evaluates() || c.isBelowEvaluation() || !c.has(fields.Epoch) && !strings.Contains(n.words, "epoch") && !trains):
	case perEpoch || len(n.values) > 1 && (named || c.unnamedTimes() == 1):
		return decide(fields.EpochSeconds, fmt.Sprintf(": the only evidence is the %s", map[bool]string{true: "name", false: "unit"}[named]))
	}
	return decision{}
}

// unnamedTimes returns the number of times without a name.
func (c *candidate) unnamedTimes() int {
	k := 0
	for i := range c.numbers {
		if n := &c.numbers[i]; n.field == nil && n.bare && n.unit == timeUnit && !n.token.clock && !(n.inner && c.numbers[i-1].unit == timeUnit) {
			k++
		}
	}
	return k
}
