package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

// Options say how a graph is lowered.
type Options struct {
	Fuse             bool // batch norm and the ReLU that alone reads it become one kernel
	BucketBytes      int  // a bucket is closed when it holds this much or more; 0: DefaultBucketBytes
	FirstBucketBytes int  // the same for the first; 0: DefaultFirstBucketBytes, at most BucketBytes
	Recompute        bool // activations are computed again in the backward pass, not kept: see Recompute
	SyncBatchNorm    bool // a training batch norm takes the statistics of all workers' batch
}

// The sizes of buckets, those of PyTorch's DistributedDataParallel: a small
// first one, so that communication starts early (Li et al., PyTorch
// Distributed, 2020, arXiv:2006.15704, section 4.2).
const (
	DefaultBucketBytes      = 25 << 20
	DefaultFirstBucketBytes = 1 << 20
)

func (o Options) withDefaults() (Options, error) {
	if o.BucketBytes < 0 || o.FirstBucketBytes < 0 {
		return o, fmt.Errorf("bucket sizes %d and %d must not be negative", o.BucketBytes, o.FirstBucketBytes)
	}
	if o.BucketBytes == 0 {
		o.BucketBytes = DefaultBucketBytes
	}
	if o.FirstBucketBytes == 0 {
		o.FirstBucketBytes = min(DefaultFirstBucketBytes, o.BucketBytes)
	}
	return o, nil
}

// Lower turns a graph into a program. A graph for training is differentiated:
// its program has a backward pass and buckets. One for evaluation gives the
// outputs, and the loss where it has one.
func Lower(g *nn.Graph, o Options) (*Program, error) {
	p, err := lower(g, o)
	if err != nil {
		return nil, fmt.Errorf("lower graph: %w", err)
	}
	return p, nil
}

func lower(g *nn.Graph, o Options) (*Program, error) {
	if g == nil {
		return nil, errors.New("it is nil")
	}
	if err := g.Err(); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := lowering{graph: g, options: o, params: g.Parameters()}
	if err := l.collect(); err != nil {
		return nil, err
	}
	if err := l.kernels(); err != nil {
		return nil, err
	}
	if err := l.schedule(); err != nil {
		return nil, err
	}
	p := l.program()
	if err := Validate(p); err != nil {
		return nil, fmt.Errorf("the result is inconsistent, which is a bug of package plan: %w", err)
	}
	if o.Recompute {
		return Recompute(p)
	}
	return p, nil
}

// value is what a kernel reads or writes. Most are the value of a node; a
// kernel of several results has more than its node stands for.
type value struct {
	node *gorgonia.Node
	part int
}

// The parts of a value beside the node's own.
const (
	partValue       = iota
	partSavedMean   // of a batch norm
	partSavedInvStd // of a batch norm
	partCopy        // of a gradient; plus the index of the parameter
)

// unit is a kernel before its tensors have ids.
type unit struct {
	op       Op
	layer    string
	attr     Attr
	in, out  []value // a nil node: absent
	backward bool
	// of is the id of the forward node whose gradient the unit is part of, and
	// rank orders the units of one forward node; see schedule.
	of   int64
	rank int
}

// lowering is the state of one call of Lower.
type lowering struct {
	graph   *nn.Graph
	options Options
	params  []nn.Variable
	grads   gorgonia.Nodes // of the parameters, in their order; nil without backward pass
	nodes   []*gorgonia.Node
	forward map[*gorgonia.Node]bool             // computed for the loss and the outputs
	readers map[*gorgonia.Node][]*gorgonia.Node // in the part of the graph that is lowered
	units   []unit
	results map[value]int // value → parameter index, of the final gradients
	steps   int           // forward units, after schedule
}

// collect finds the nodes that the loss, the outputs and the gradients need:
// gorgonia.Grad makes more than that.
func (l *lowering) collect() error {
	var roots []*gorgonia.Node
	for _, o := range l.graph.Outputs() {
		roots = append(roots, o.Node)
	}
	if loss := l.graph.Loss(); loss != nil {
		roots = append(roots, loss)
	}
	if len(roots) == 0 {
		return errors.New("it has neither loss nor outputs: call SetLoss or Output")
	}
	if l.graph.Mode() == nn.Train {
		var err error
		if l.grads, err = l.graph.Gradients(); err != nil {
			return err
		}
	}
	l.forward = map[*gorgonia.Node]bool{}
	l.readers = map[*gorgonia.Node][]*gorgonia.Node{}
	seen := map[*gorgonia.Node]bool{}
	l.walk(roots, seen)
	for n := range seen {
		l.forward[n] = true
	}
	l.walk(l.grads, seen)
	// The order of creation is an order of computation, since a node can only
	// be made from nodes that exist.
	slices.SortFunc(l.nodes, func(a, b *gorgonia.Node) int { return int(a.ID() - b.ID()) })
	return nil
}

// walk appends what is reachable from roots and not seen yet to l.nodes.
func (l *lowering) walk(roots []*gorgonia.Node, seen map[*gorgonia.Node]bool) {
	todo := slices.Clone(roots)
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[n] {
			continue
		}
		seen[n] = true
		l.nodes = append(l.nodes, n)
		for _, c := range nn.Operands(l.graph.Expr(), n) {
			l.readers[c] = append(l.readers[c], n)
			todo = append(todo, c)
		}
	}
}

// constant is the value of a constant node.
func constant(n *gorgonia.Node) (float64, bool) {
	c, ok := n.Op().(interface{ Value() gorgonia.Value })
	if !ok {
		return 0, false
	}
	switch v := c.Value().Data().(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// isSum recognises the addition that gorgonia.Grad inserts where a value is
// read more than once: the only foreign operation that is lowered.
func isSum(n *gorgonia.Node) bool {
	return n.Op() != nil && strings.HasPrefix(n.Op().String(), "+ ")
}
