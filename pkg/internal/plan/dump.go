package plan

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"lockstep/pkg/internal/device"
)

// FLOPs returns the number of floating-point operations of k. A multiplication and an
// addition count as two operations. As usual, only convolutions, transposed convolutions,
// linear layers and their gradients are counted; the result for other kernels is 0.
func (p *Program) FLOPs(k Kernel) int64 {
	var w, small int // tensor IDs: the weights (or their gradient) and the smaller feature map
	switch k.Op {
	case OpConv, OpLinear:
		w, small = k.In[1], k.Out[0]
	case OpConvBackwardData, OpLinearBackwardData:
		w, small = k.In[0], k.In[1]
	case OpConvBackwardWeights, OpLinearBackwardWeights:
		w, small = k.Out[0], k.In[1]
	case OpConvTranspose:
		w, small = k.In[1], k.In[0]
	case OpConvTransposeBackwardData:
		w, small = k.In[0], k.Out[0]
	case OpConvTransposeBackwardWeights:
		w, small = k.Out[0], k.In[0]
	default:
		return 0
	}
	// Each weight is used once per position of the smaller feature map.
	s := p.Tensors[small]
	return 2 * int64(p.Tensors[w].Elements()) * int64(s.Elements()/s.Shape[1])
}

// StepFLOPs returns the sum of FLOPs over the kernels of one step of p. Kernels that
// AddRecomputation repeats count once, and algorithms with fewer operations, such as Winograd's,
// count like the direct algorithm. Rates based on StepFLOPs are therefore comparable between
// engines and settings.
func (p *Program) StepFLOPs() (n int64) {
	for _, k := range p.Kernels {
		if !k.Recomputed {
			n += p.FLOPs(k)
		}
	}
	return n
}

// String lists the kernels in readable form, one per line, with the tensors that each kernel
// writes and reads. It lists each bucket below the kernel that computes the bucket's last
// gradient.
func (p *Program) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for at, k := range p.Kernels {
		var out []string
		for _, id := range k.Out {
			out = append(out, p.tensorLabel(id, true))
		}
		var in []string
		for _, id := range k.In {
			in = append(in, p.tensorLabel(id, false))
		}
		name := k.Name
		if k.Recomputed {
			name += " again"
		}
		fmt.Fprintf(w, "%d\t%s%s\t%s\t%s\t= (%s)\n", at, k.Op, k.Attr, name, strings.Join(out, ", "), strings.Join(in, ", "))
		for i, g := range p.Buckets {
			if g.Ready == at {
				fmt.Fprintf(w, "\tbucket %d\t%d gradients\t%d bytes\t\n", i, len(g.Params), g.Bytes)
			}
		}
	}
	_ = w.Flush() // writing to a strings.Builder never fails
	lines := strings.Split(b.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

// tensorLabel returns the name of a tensor for String, or "-" if id is negative.
func (p *Program) tensorLabel(id int, withShape bool) string {
	if id < 0 {
		return "-"
	}
	t := p.Tensors[id]
	var s string
	switch t.Role {
	case Activation:
		s = fmt.Sprintf("%%%d", id)
	case Gradient:
		s = "∇" + t.Name
	default:
		s = t.Name
	}
	if withShape {
		s += strings.ReplaceAll(fmt.Sprint(t.Shape), " ", "×")
		if t.Stored != device.Host {
			s += " " + t.Stored.String()
		}
	}
	return s
}

// String lists the attributes that are set, in parentheses. It returns "" if none is set.
func (a KernelAttr) String() string {
	var s []string
	for _, v := range []struct {
		name  string
		value []int
	}{{"kernel", a.Kernel}, {"stride", a.Stride}, {"pad", a.Pad}, {"behind", a.PadEnd}} {
		if len(v.value) > 0 {
			s = append(s, fmt.Sprint(v.name, " ", strings.Trim(fmt.Sprint(v.value), "[]")))
		}
	}
	if a.PadZeros {
		s = append(s, "pad zeros")
	}
	if a.Offset > 0 {
		s = append(s, fmt.Sprint("offset ", a.Offset))
	}
	for _, v := range []struct {
		name string
		set  bool
	}{{"training", a.Training}, {"sync", a.Sync}, {"saved", a.Saved}, {"relu", a.ReLU}} {
		if v.set {
			s = append(s, v.name)
		}
	}
	for _, v := range []struct {
		name  string
		value float64
	}{{"slope", a.Slope}, {"smoothing", a.Smoothing}, {"exp weight", a.ExpWeight}, {"dice weight", a.DiceWeight}} {
		if v.value != 0 {
			s = append(s, fmt.Sprint(v.name, " ", v.value))
		}
	}
	if a.ClassWeights != nil {
		s = append(s, fmt.Sprint("class weights ", strings.Trim(fmt.Sprint(a.ClassWeights), "[]")))
	}
	if a.Ignore > 0 {
		s = append(s, fmt.Sprint("ignore ", a.Ignore))
	}
	if len(s) == 0 {
		return ""
	}
	return "(" + strings.Join(s, ", ") + ")"
}
