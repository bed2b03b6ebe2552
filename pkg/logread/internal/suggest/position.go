package suggest

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
)

// candidate is a shape with what its numbers mean.
type candidate struct {
	*shape
	numbers  []number
	kind     Kind
	restarts int     // of the steps of lines without an epoch
	ordered  bool    // the n-th line is that of epoch n, which later lines show
	groups   [][]int // indexes of the lines of each file and rank
}

// newCandidate returns a shape whose ranks, epochs, steps and settings are found.
func newCandidate(s *shape, headings []string) *candidate {
	c := &candidate{shape: s, numbers: s.numbers()}
	for i, h := range headings {
		c.numbers[i].setHeading(h)
	}
	for i := 1; i < len(c.numbers); i++ { // 12,4 has a decimal comma, or is two numbers
		if a, b := &c.numbers[i-1], &c.numbers[i]; b.at == a.at+2 && c.tokens[a.at+1].isMark(",") && b.token.space == 0 && !b.token.clock {
			a.field, b.field, a.bare, b.bare = nil, nil, false, false
		}
	}
	for _, weak := range []bool{false, true} {
		for i := range c.numbers {
			if n := &c.numbers[i]; n.weak == weak && c.isRank(n) && !c.has(fields.Rank) {
				n.is(fields.Rank, "%s: each of %s… has as many lines", n.quote(), strings.Join(n.texts, ", "))
			}
		}
	}
	c.group()
	for i := range c.numbers {
		if n := &c.numbers[i]; !c.has(fields.Epoch) && c.countsEpochs(n) {
			n.is(fields.Epoch, "%s: a whole number that rises from epoch to epoch", n.quote())
		}
	}
	for i := range c.numbers {
		if n := &c.numbers[i]; !c.has(fields.Step) && !(c.has(fields.Epoch) && c.repeatsEpochs() == 0) && c.countsSteps(i) {
			n.is(fields.Step, "%sa whole number that rises from line to line", n.quoteName())
		}
	}
	if epoch := c.constantEpoch(); epoch != nil {
		epoch.is(fields.Epoch, "%s: the log has one epoch", epoch.quote())
	}
	for i := 1; i < len(c.numbers); i++ {
		c.nameTotal(&c.numbers[i-1], &c.numbers[i])
	}
	return c
}

// is sets the meaning of the number.
func (n *number) is(field, format string, a ...any) {
	n.as, n.why = field, fmt.Sprintf(format, a...)
}

// quote describes the words that name the number.
func (n *number) quote() string {
	if n.afterName {
		return fmt.Sprintf("before %q", n.words)
	}
	return fmt.Sprintf("after %q", n.words)
}

// quoteName is quote with a colon, or "" if nothing names the number.
func (n *number) quoteName() string {
	if n.field == nil {
		return ""
	}
	return n.quote() + ": "
}

// isNamed reports whether the words beside the number are the name of the field.
func (n *number) isNamed(field string) bool { return n.field != nil && n.field.Name == field }

// find returns the number that has the field, or nil.
func (c *candidate) find(field string) *number {
	for i := range c.numbers {
		if c.numbers[i].as == field {
			return &c.numbers[i]
		}
	}
	return nil
}

// has reports whether one of the numbers has the field.
func (c *candidate) has(field string) bool { return c.find(field) != nil }

// distinct returns the different values of the number in rising order.
func (n *number) distinct() []float64 { return slices.Compact(ascending(n.values)) }

// isRank reports whether the number is named like a rank, all ranks from 0 or 1 occur, and each has about
// as many lines.
func (c *candidate) isRank(n *number) bool {
	if !n.isNamed(fields.Rank) || !n.whole || n.unit != noUnit || n.afterName || n.ofTotal {
		return false
	}
	ranks := n.distinct()
	counts := map[float64]int{}
	least, most := len(n.values), 0
	for _, v := range n.values {
		counts[v]++
	}
	for _, k := range counts {
		least, most = min(least, k), max(most, k)
	}
	last := len(ranks) - 1
	return last > 0 && ranks[0] >= 0 && ranks[0] <= 1 && ranks[last]-ranks[0] == float64(last) && least*2 >= most && least > 1
}

// group sets the groups of lines.
func (c *candidate) group() {
	type key struct {
		file int
		rank float64
	}
	index := map[key]int{}
	rank := c.find(fields.Rank)
	for i, at := range c.lines {
		k := key{at.file, float64(at.rank)}
		if rank != nil {
			k.rank = rank.values[i]
		}
		g, ok := index[k]
		if !ok {
			g = len(c.groups)
			index[k] = g
			c.groups = append(c.groups, nil)
		}
		c.groups[g] = append(c.groups[g], i)
	}
}

// eachPair calls use for each two lines that follow each other in a group.
func (c *candidate) eachPair(use func(i, j int)) {
	for _, group := range c.groups {
		for k := 1; k < len(group); k++ {
			use(group[k-1], group[k])
		}
	}
}

// countsEpochs reports whether the number is named like an epoch and rises by one, or, if the name has
// no other meaning, by other steps. It may begin again.
func (c *candidate) countsEpochs(n *number) bool {
	if !n.isNamed(fields.Epoch) || n.vetoed || !n.whole || n.unit != noUnit || n.ofTotal || slices.Min(n.values) < 0 {
		return false
	}
	first := n.values[0]
	ones, jumps, falls := 0, 0, 0
	c.eachPair(func(i, j int) {
		switch d := n.values[j] - n.values[i]; {
		case d == 1:
			ones++
		case d > 0:
			jumps++
		case d < 0 && n.values[j] > max(first, 1):
			falls++
		}
	})
	if n.weak {
		return ones > 0 && jumps+falls == 0 && first <= 1
	}
	return ones+jumps > 0 && 10*falls <= ones+jumps
}

// constantEpoch returns the number of the only epoch of a log with steps, or nil.
func (c *candidate) constantEpoch() *number {
	if c.has(fields.Epoch) || !c.has(fields.Step) {
		return nil
	}
	for i := range c.numbers {
		if n := &c.numbers[i]; n.as == "" && n.isNamed(fields.Epoch) && !n.weak && n.whole && !n.ofTotal && len(n.texts) == 1 && n.values[0] >= 0 {
			return n
		}
	}
	return nil
}

// repeatsEpochs returns the number of lines whose epoch the line before it has too.
func (c *candidate) repeatsEpochs() int {
	epoch, repeats := c.find(fields.Epoch), 0
	if epoch != nil {
		c.eachPair(func(i, j int) {
			if epoch.values[i] == epoch.values[j] {
				repeats++
			}
		})
	}
	return repeats
}

// countsSteps reports whether number i rises from line to line, and begins again only in a new epoch or
// run. A number without a name counts steps if it has a total and follows the epoch, as in "[1][50/400]".
func (c *candidate) countsSteps(i int) bool {
	n, epoch := &c.numbers[i], c.find(fields.Epoch)
	if n.as != "" || !n.whole || n.unit != noUnit || n.ofTotal || n.afterName || slices.Min(n.values) < 0 {
		return false
	}
	if !n.isNamed(fields.Step) && !c.isProgress(i) || n.vetoed {
		return false
	}
	if i+1 < len(c.numbers) && c.numbers[i+1].ofTotal && len(c.numbers[i+1].texts) > 1 {
		return false // steps of several loops, such as those of the training and of the evaluation
	}
	rises, falls, again := 0, 0, 0
	c.eachPair(func(i, j int) {
		newEpoch := epoch != nil && epoch.values[i] != epoch.values[j]
		switch {
		case n.values[j] > n.values[i]:
			rises++
		case newEpoch, epoch == nil && n.values[j] <= n.values[0]:
			again++
		default:
			falls++
		}
	})
	if epoch == nil && slices.ContainsFunc(c.numbers, func(o number) bool { return o.isNamed(fields.Epoch) && len(o.texts) > 1 }) {
		return false
	}
	if epoch == nil {
		c.restarts = again
	}
	return rises > 0 && 10*falls <= rises && again <= rises
}

// isProgress reports whether number i, which has no name, counts the steps of an epoch: the number before
// it is part of the epoch, and a constant total follows. Positions such as [0/60000], [640/60000] count
// samples.
func (c *candidate) isProgress(i int) bool {
	if i == 0 || i+1 == len(c.numbers) || !c.numbers[i].bare || !c.numbers[i+1].ofTotal {
		return false
	}
	before := c.numbers[i-1].as == fields.Epoch || i > 1 && c.numbers[i-1].ofTotal && c.numbers[i-2].as == fields.Epoch || c.constantBefore(i)
	n, total := &c.numbers[i], &c.numbers[i+1]
	if !before || len(total.texts) > 1 || slices.Max(n.values) > total.values[0] {
		return false
	}
	return n.values[0] != 0 || slices.ContainsFunc(n.distinct(), func(v float64) bool { return int64(v)%16 != 0 && v != total.values[0] })
}

// constantBefore reports whether the number before number i is named like an epoch and does not change.
func (c *candidate) constantBefore(i int) bool {
	n := &c.numbers[i-1]
	return n.isNamed(fields.Epoch) && !n.weak && n.whole && len(n.texts) == 1
}

// nameTotal names the total after a number of an epoch, step or rank.
func (c *candidate) nameTotal(n, total *number) {
	if !total.ofTotal || len(total.texts) > 1 || total.values[0] < slices.Max(n.values) {
		return
	}
	switch n.as {
	case fields.Epoch:
		total.is(fields.Epochs, "after the number of the epoch: the planned epochs")
	case fields.Step:
		total.is(fields.Steps, "after the number of the step: the number of steps")
	case fields.Rank:
		if int(total.values[0]) == len(n.distinct()) {
			total.is(fields.Workers, "after the rank: the number of workers")
		}
	}
}

// isConstant reports whether all lines of a file have the same number.
func (c *candidate) isConstant(n *number) bool {
	for i := range n.values {
		if i > 0 && c.lines[i].file == c.lines[i-1].file && n.values[i] != n.values[i-1] {
			return false
		}
	}
	return true
}

// nameSettings names the numbers of workers and nodes, seeds and batch sizes, which must not change.
func (c *candidate) nameSettings() {
	trains := slices.ContainsFunc(c.tokens, func(t token) bool {
		return t.kind == wordToken && strings.HasPrefix(strings.ToLower(t.text), "train")
	})
	for i := range c.numbers {
		n := &c.numbers[i]
		if n.as != "" || n.field == nil || n.weak || !n.whole || n.unit != noUnit || n.ofTotal || n.inner || c.has(n.field.Name) || !c.isConstant(n) {
			continue
		}
		switch n.field.Name {
		case fields.Workers, fields.Nodes, fields.Batch:
			if n.values[0] < 1 || n.values[0] > 1<<20 {
				continue
			}
		case fields.Seed:
		default:
			continue
		}
		if n.afterName { // "on 4 GPUs", but not "found 4 GPUs", and not "with 4 workers" of a data loader
			if k := n.at - 1; n.loader || k < 0 || !c.tokens[k].isWord("on", "using", "with", "across") || !trains && strings.HasPrefix(n.words, "worker") {
				continue
			}
		}
		n.is(n.field.Name, "%s", n.quote())
	}
}
