package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

// Options configures Lower.
type Options struct {
	Fuse             bool // fuse a batch norm with a ReLU that is its only reader
	BucketBytes      int  // a bucket is closed once it has this size or more; 0: DefaultBucketBytes
	FirstBucketBytes int  // BucketBytes of the first bucket; 0: DefaultFirstBucketBytes, at most BucketBytes
	Recompute        bool // recompute activations in the backward pass instead of keeping them: see Recompute
	SyncBatchNorm    bool // batch norms in training use the statistics of all workers' batches
}

// The default bucket sizes are the same as in PyTorch's DistributedDataParallel. The first
// bucket is small, so that communication starts early (Li et al., PyTorch Distributed, 2020,
// arXiv:2006.15704, section 4.2).
const (
	DefaultBucketBytes      = 25 << 20
	DefaultFirstBucketBytes = 1 << 20
)

// withDefaults replaces bucket sizes of 0 with the defaults. It returns an error for negative
// sizes.
func (o Options) withDefaults() (Options, error) {
	if o.BucketBytes < 0 || o.FirstBucketBytes < 0 {
		return o, fmt.Errorf("invalid bucket sizes %d and %d: they must not be negative", o.BucketBytes, o.FirstBucketBytes)
	}
	if o.BucketBytes == 0 {
		o.BucketBytes = DefaultBucketBytes
	}
	if o.FirstBucketBytes == 0 {
		o.FirstBucketBytes = min(DefaultFirstBucketBytes, o.BucketBytes)
	}
	return o, nil
}

// Lower converts a graph to a program. The program of a graph in mode Train has a backward
// pass and buckets. The program of a graph in mode Eval computes the outputs, and the loss
// if the graph has one.
func Lower(g *nn.Graph, o Options) (*Program, error) {
	p, err := lowerGraph(g, o)
	if err != nil {
		return nil, fmt.Errorf("lower graph: %w", err)
	}
	return p, nil
}

// lowerGraph is Lower, but its errors do not begin with "lower graph".
func lowerGraph(g *nn.Graph, o Options) (*Program, error) {
	if g == nil {
		return nil, errors.New("the graph is nil")
	}
	if err := g.Err(); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := graphLowering{graph: g, options: o, params: g.Parameters()}
	if err := l.collectNeededNodes(); err != nil {
		return nil, err
	}
	if err := l.createPendingKernels(); err != nil {
		return nil, err
	}
	if err := l.scheduleKernels(); err != nil {
		return nil, err
	}
	p := l.buildProgram()
	if err := Validate(p); err != nil {
		return nil, fmt.Errorf("the result is inconsistent, which is a bug of package plan: %w", err)
	}
	if o.Recompute {
		return AddRecomputation(p)
	}
	return p, nil
}

// pendingTensorKey identifies a tensor that has no ID yet. Most values are the result of a node. If
// the kernel for a node has more results than the node, part distinguishes them.
type pendingTensorKey struct {
	node *gorgonia.Node
	part int
}

// The values of pendingTensorKey.part.
const (
	partValue       = iota // the result of the node
	partSavedMean          // saved mean of a batch norm
	partSavedInvStd        // saved 1/√(var+ε) of a batch norm
	partCopy               // copy of a gradient: partCopy + the index of the parameter
)

type pendingKernel struct {
	op       Op
	layer    string
	attr     KernelAttr
	in, out  []pendingTensorKey // node is nil for an absent value
	backward bool
	// forwardNode is the ID of a node of the forward pass. The kernel computes this node, or
	// part of the gradient of its operation. rank orders the kernels with the same forwardNode;
	// see schedule.
	forwardNode int64
	rank        int
}

type graphLowering struct {
	graph   *nn.Graph
	options Options
	params  []nn.Variable
	grads   gorgonia.Nodes // gradients in the order of params; nil without backward pass
	nodes   []*gorgonia.Node
	forward map[*gorgonia.Node]bool             // nodes on which the loss and the outputs depend
	readers map[*gorgonia.Node][]*gorgonia.Node // by node: the lowered nodes that read it
	pending []pendingKernel
	results map[pendingTensorKey]int // final gradient → parameter index
	steps   int                      // number of forward kernels, set by schedule
}

// collectNeededNodes finds the nodes on which the loss, the outputs and the gradients depend.
// gorgonia.Grad also creates nodes that nothing depends on.
func (l *graphLowering) collectNeededNodes() error {
	var roots []*gorgonia.Node
	for _, o := range l.graph.Outputs() {
		roots = append(roots, o.Node)
	}
	if loss := l.graph.Loss(); loss != nil {
		roots = append(roots, loss)
	}
	if len(roots) == 0 {
		return errors.New("the graph has neither loss nor outputs: call SetLoss or Output")
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
	l.addReachableNodes(roots, seen)
	for n := range seen {
		l.forward[n] = true
	}
	l.addReachableNodes(l.grads, seen)
	// Nodes are created after their operands: the order of creation is an order of
	// computation.
	slices.SortFunc(l.nodes, func(a, b *gorgonia.Node) int { return int(a.ID() - b.ID()) })
	return nil
}

// addReachableNodes adds the nodes that are reachable from roots to l.nodes and to seen. It skips
// nodes in seen.
func (l *graphLowering) addReachableNodes(roots []*gorgonia.Node, seen map[*gorgonia.Node]bool) {
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

// constantValue returns the value of n. ok is false if n is not a constant.
func constantValue(n *gorgonia.Node) (v float64, ok bool) {
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

// isGradientSum reports whether n is an addition that gorgonia.Grad inserts to sum the gradients of
// a value that is read more than once. It is the only operation outside of package nn that
// Lower supports.
func isGradientSum(n *gorgonia.Node) bool {
	return n.Op() != nil && strings.HasPrefix(n.Op().String(), "+ ")
}
