package suggest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
)

// candidate is a shape with the meaning of its numbers as far as it is known.
type candidate struct {
	*shape
	numbers  []describedNumber
	kind     LineKind
	restarts int     // of the steps of lines without an epoch
	groups   [][]int // indexes of the lines of each file and rank
}

// newCandidate returns a candidate for the shape s. It determines which numbers are ranks, epochs,
// steps and totals.
func newCandidate(s *shape) *candidate {
	c := &candidate{shape: s, numbers: s.describeNumbers()}
	for _, weak := range []bool{false, true} {
		for i := range c.numbers {
			if n := &c.numbers[i]; n.weak == weak && c.isRank(n) && !c.hasField(fields.Rank) {
				n.is(fields.Rank, "%s: each of %s… has as many lines", n.describeName(), strings.Join(n.texts, ", "))
			}
		}
	}
	c.groupLinesByRank()
	for i := range c.numbers {
		c.useAsClock(&c.numbers[i])
	}
	for i := range c.numbers {
		if n := &c.numbers[i]; !c.hasField(fields.Epoch) && c.countsEpochs(n) {
			n.is(fields.Epoch, "%s: a whole number that rises from epoch to epoch", n.describeName())
		}
	}
	for i := range c.numbers {
		if n := &c.numbers[i]; !c.hasField(fields.Step) && !(c.hasField(fields.Epoch) && c.countRepeatedEpochs() == 0) && c.countsSteps(i) {
			n.is(fields.Step, "%s: a whole number that rises from line to line", n.describeName())
		}
	}
	for i := range c.numbers {
		if n := &c.numbers[i]; c.hasField(fields.Step) && !c.hasField(fields.Epoch) && n.isOnlyEpoch() {
			n.is(fields.Epoch, "%s: the log has one epoch", n.describeName())
		}
	}
	for i := 1; i < len(c.numbers); i++ {
		c.nameTotal(&c.numbers[i-1], &c.numbers[i])
	}
	return c
}

// useAsClock uses the number n as the time stamp of lines that have none, if n is a time of day that
// never decreases.
func (c *candidate) useAsClock(n *describedNumber) {
	isClock := strings.Count(n.token.text, ":") == 2
	c.forEachLinePair(func(i, j int) { isClock = isClock && n.values[j] >= n.values[i] })
	for i := range c.lines {
		if isClock && math.IsNaN(c.lines[i].clock) {
			c.lines[i].clock = n.values[i]
		}
	}
}

func (n *describedNumber) is(field, format string, a ...any) {
	n.as, n.why = field, fmt.Sprintf(format, a...)
}

func (n *describedNumber) describeName() string {
	if n.bare {
		return "without a name"
	}
	return fmt.Sprintf("after %q", n.words)
}

func (n *describedNumber) isNamed(names ...string) bool {
	return n.field != nil && slices.Contains(names, n.field.Name)
}

func (c *candidate) findField(field string) *describedNumber {
	for i := range c.numbers {
		if c.numbers[i].as == field {
			return &c.numbers[i]
		}
	}
	return nil
}

func (c *candidate) hasField(field string) bool { return c.findField(field) != nil }

// mayCount reports whether the number is an integer without a unit that may count something.
func (n *describedNumber) mayCount() bool {
	return n.whole && n.unit == noUnit && !n.ofTotal && !n.vetoed && slices.Min(n.values) >= 0
}

// isRank reports whether the number is named like a rank, all ranks from 0 or 1 occur, and each has
// about equally many lines.
func (c *candidate) isRank(n *describedNumber) bool {
	if !n.isNamed(fields.Rank) || !n.mayCount() {
		return false
	}
	ranks := slices.Compact(sortedWithoutNaN(n.values))
	least, most := len(n.values), 0
	for i := range ranks {
		k := 0
		for _, v := range n.values {
			if v == ranks[i] {
				k++
			}
		}
		if least, most = min(least, k), max(most, k); k < 2 || ranks[i] != ranks[0]+float64(i) {
			return false
		}
	}
	return len(ranks) > 1 && ranks[0] <= 1 && least*2 >= most
}

func (c *candidate) groupLinesByRank() {
	type key struct {
		file int
		rank float64
	}
	index := map[key]int{}
	rank := c.findField(fields.Rank)
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

// forEachLinePair calls use with the indexes of each pair of consecutive lines of one file and rank.
func (c *candidate) forEachLinePair(use func(i, j int)) {
	for _, group := range c.groups {
		for k := 1; k < len(group); k++ {
			use(group[k-1], group[k])
		}
	}
}

// countsEpochs reports whether the number is named like an epoch and rises by one or, if its name
// is not ambiguous, by other steps. It may begin again.
func (c *candidate) countsEpochs(n *describedNumber) bool {
	if !n.isNamed(fields.Epoch) || !n.mayCount() {
		return false
	}
	first := n.values[0]
	ones, jumps, falls := 0, 0, 0
	c.forEachLinePair(func(i, j int) {
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

// isOnlyEpoch reports whether the number is named like an epoch and all lines have the same one.
func (n *describedNumber) isOnlyEpoch() bool {
	return n.isNamed(fields.Epoch) && !n.weak && n.mayCount() && len(n.texts) == 1
}

// countRepeatedEpochs returns the number of lines with the same epoch as the line before.
func (c *candidate) countRepeatedEpochs() int {
	epoch, repeats := c.findField(fields.Epoch), 0
	if epoch != nil {
		c.forEachLinePair(func(i, j int) {
			if epoch.values[i] == epoch.values[j] {
				repeats++
			}
		})
	}
	return repeats
}

// countsSteps reports whether number i rises from line to line and starts again only in a new epoch
// or run. A number without a name counts steps if it follows the epoch and has a total, as in
// "[1][50/400]".
func (c *candidate) countsSteps(i int) bool {
	n, epoch := &c.numbers[i], c.findField(fields.Epoch)
	if n.as != "" || !n.mayCount() || !n.isNamed(fields.Step) && !c.countsUnnamedSteps(i) {
		return false
	}
	if i+1 < len(c.numbers) && c.numbers[i+1].ofTotal && len(c.numbers[i+1].texts) > 1 {
		return false // steps of several loops, such as those of the training and of the evaluation
	}
	if epoch == nil && slices.ContainsFunc(c.numbers, func(o describedNumber) bool { return o.isNamed(fields.Epoch) && len(o.texts) > 1 }) {
		return false
	}
	rises, falls, again := 0, 0, 0
	c.forEachLinePair(func(i, j int) {
		switch {
		case n.values[j] > n.values[i]:
			rises++
		case epoch != nil && epoch.values[i] != epoch.values[j], epoch == nil && n.values[j] <= n.values[0]:
			again++
		default:
			falls++
		}
	})
	if epoch == nil {
		c.restarts = again
	}
	return rises > 0 && 10*falls <= rises && again <= rises
}

// countsUnnamedSteps reports whether number i, which has no name, counts the steps of an epoch. It
// must follow the number of the epoch and precede a constant total. Positions such as [0/60000],
// [640/60000], or [16/5011], [1616/5011], count samples and not steps.
func (c *candidate) countsUnnamedSteps(i int) bool {
	if i == 0 || i+1 == len(c.numbers) || !c.numbers[i].bare || !c.numbers[i+1].ofTotal {
		return false
	}
	n, before, total := &c.numbers[i], &c.numbers[i-1], &c.numbers[i+1]
	if before.ofTotal && i > 1 {
		before = &c.numbers[i-2]
	}
	if before.as != fields.Epoch && !before.isOnlyEpoch() || len(total.texts) > 1 || slices.Max(n.values) > total.values[0] {
		return false
	}
	batch, interval := n.values[0], math.Inf(1)
	if batch == 0 {
		batch = 16 // or a multiple
	} else {
		c.forEachLinePair(func(i, j int) {
			if d := n.values[j] - n.values[i]; d > 0 && n.values[j] != total.values[0] {
				interval = min(interval, d)
			}
		})
	}
	isSteps := func(v float64) bool { return int64(v)%int64(batch) != 0 && v != total.values[0] }
	return batch == 1 || interval == batch || slices.ContainsFunc(n.values, isSteps)
}

func (c *candidate) nameTotal(n, total *describedNumber) {
	switch {
	case !total.ofTotal, len(total.texts) > 1, total.values[0] < slices.Max(n.values):
	case n.as == fields.Epoch:
		total.is(fields.Epochs, "after the number of the epoch: the planned epochs")
	case n.as == fields.Step:
		total.is(fields.Steps, "after the number of the step: the number of steps")
	}
}

// nameSettings names workers, nodes, seeds and batch sizes, which must not change in a file or a line. The
// word after a number names it in "on 4 GPUs", but not in "found 4 GPUs", and in "with 4 workers" or
// "processes" only if they train. Slurm's NumTasks are workers; num_tasks are tasks that a model learns.
// A device_count is not taken for workers, and the nodes of a graph are not taken for hosts.
func (c *candidate) nameSettings() {
	if slices.ContainsFunc(c.tokens, func(t token) bool { return t.isWord("best") }) {
		return // the line describes the best of several runs
	}
	for i := range c.numbers {
		n := &c.numbers[i]
		field, why := n.field, n.describeName()
		if k := n.at; field == nil && k > 0 && k+1 < len(c.tokens) && c.tokens[k-1].isWord("on using with across") && c.tokens[k+1].kind == wordToken && !c.hasWord("load", "dataload") {
			word := c.tokens[k+1].text
			if why = fmt.Sprintf("before %q", word); c.hasWord("train", "distribut") || !strings.HasPrefix(word, "worker") && !strings.HasPrefix(word, "process") {
				if field = fields.LookupColumn(word); strings.EqualFold(word, "tasks") || field != nil && field.Name != fields.Workers && (field.Name != fields.Nodes || c.hasWord("rank", "barrier")) {
					field = nil // PyTorch's processes wait at a barrier "with 8 nodes", which are processes
				}
			}
		}
		if n.as != "" || field == nil || n.weak || strings.HasSuffix(n.words, " tasks") || strings.HasSuffix(n.words, "device count") || field.Name == fields.Nodes && c.hasWord("edge", "graph") || !n.whole || n.unit != noUnit || n.ofTotal || n.inner || c.hasField(field.Name) || !slices.Contains([]string{fields.Workers, fields.Nodes, fields.Seed, fields.Batch}, field.Name) {
			continue
		}
		constant := field.Name == fields.Seed || n.values[0] >= 1 && n.values[0] <= 1<<20
		for _, o := range c.numbers {
			constant = constant && !(o.words == n.words && o.values[0] != n.values[0])
		}
		for k := 1; k < len(n.values); k++ {
			constant = constant && (c.lines[k].file != c.lines[k-1].file || n.values[k] == n.values[k-1])
		}
		if constant {
			n.is(field.Name, "%s", why)
		}
	}
}

// hasWord reports whether the lines contain a word that begins with one of the given texts.
func (c *candidate) hasWord(beginnings ...string) bool {
	return slices.ContainsFunc(c.tokens, func(t token) bool {
		return t.kind == wordToken && slices.ContainsFunc(splitWords(t.text), func(w string) bool {
			return slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(w, b) })
		})
	})
}
