package kernels_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/engine/cuda/kernels/hostsim"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/plan"
)

func openSimulator(t *testing.T) *hostsim.Simulator {
	t.Helper()
	if testing.Short() {
		t.Skip("slow")
	}
	sim, err := hostsim.OpenShared()
	if errors.Is(err, hostsim.ErrNoCompiler) {
		t.Skip("no g++ on this machine: the kernels cannot be simulated")
	}
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

// unit is half the distance of neighbouring numbers of type t, relative.
func unit(t kernels.ElementType) float64 {
	return map[kernels.ElementType]float64{kernels.F32: 0x1p-24, kernels.F16: 0x1p-11, kernels.BF16: 0x1p-8}[t]
}

// smallest is half the smallest step of type t (float16 underflows where tests go).
func smallest(t kernels.ElementType) float64 {
	if t == kernels.F16 {
		return 0x1p-25
	}
	return 0
}

// device is one simulated run: it owns the memory of a test's tensors.
type device struct {
	*testing.T
	sim    *hostsim.Simulator
	typ    kernels.ElementType
	gap    bool // maps lie inside wider ones, and few threads do the work of many
	random *rand.Rand
	memory []*tensor
}

// tensor is a tensor of a test in the device's memory.
type tensor struct {
	name   string
	mem    *hostsim.Memory
	typ    kernels.ElementType
	before []byte // of an input, which must stay
	// For a map: its logical shape NC…, the pitch of its rows, and the margin before them.
	shape         []int
	pitch, margin int
}

// eachDevice runs f for fp32 with gaps and for bf16 without, in both orders of execution, which must
// leave the same bits in memory. The self-test, which package selftest runs on the simulator, checks every
// kernel in fp16, and most in fp32 without gaps.
func eachDevice(t *testing.T, f func(d *device)) {
	sim := openSimulator(t)
	for _, c := range []struct {
		typ kernels.ElementType
		gap bool
	}{{kernels.F32, true}, {kernels.BF16, false}} {
		typ, gap := c.typ, c.gap
		t.Run(fmt.Sprintf("%s/gap-%v", typ, gap), func(t *testing.T) {
			var first [][]byte
			for _, reversed := range []bool{false, true} {
				sim.Reversed = reversed
				d := &device{T: t, sim: sim, typ: typ, gap: gap, random: rand.New(rand.NewPCG(7, uint64(typ)))}
				f(d)
				bits := d.finish()
				if !reversed {
					first = bits
					continue
				}
				for i := range bits {
					if !bytes.Equal(bits[i], first[i]) {
						t.Errorf("%s: another order of blocks and threads gives other bits", d.memory[i].name)
					}
				}
			}
			sim.Reversed = false
		})
	}
}

// finish checks what no kernel may have touched and returns all memory.
func (d *device) finish() [][]byte {
	d.Helper()
	var all [][]byte
	for _, x := range d.memory {
		if err := x.mem.CheckSurroundings(); err != nil {
			d.Errorf("%s: %v", x.name, err)
		}
		if x.before != nil && !bytes.Equal(x.before, x.mem.Bytes()) {
			d.Errorf("%s: an input was changed", x.name)
		}
		all = append(all, bytes.Clone(x.mem.Bytes()))
		if err := x.mem.Free(); err != nil {
			d.Error(err)
		}
	}
	return all
}

func (d *device) alloc(name string, bytes int) *tensor {
	d.Helper()
	mem, err := hostsim.Alloc(bytes, 16)
	if err != nil {
		d.Fatal(err)
	}
	x := &tensor{name: name, mem: mem}
	d.memory = append(d.memory, x)
	return x
}

// normal are n random numbers, rounded to typ so that only the kernel rounds.
func (d *device) normal(typ kernels.ElementType, n int, mean, deviation float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = round(typ, float32(mean+deviation*d.random.NormFloat64()))
	}
	return v
}

func round(typ kernels.ElementType, v float32) float32 {
	return number.DeviceType(typ).Round(v)
}

// flat is an array as it is; nil values leave it poisoned, an output.
func (d *device) flat(name string, typ kernels.ElementType, n int, values []float32) *tensor {
	d.Helper()
	x := d.alloc(name, n*typ.Bytes())
	x.typ = typ
	if values != nil {
		x.mem.Store(typ, values)
		x.before = bytes.Clone(x.mem.Bytes())
	}
	return x
}

// channels is a float32 array of padded length, zero in the padding.
func (d *device) channels(name string, values []float32) *tensor {
	d.Helper()
	padded := make([]float32, kernels.PaddedChannels(len(values)))
	copy(padded, values)
	return d.flat(name, kernels.F32, len(padded), padded)
}

// empty is a poisoned float32 array of padded length.
func (d *device) empty(name string, channels int) *tensor {
	return d.flat(name, kernels.F32, kernels.PaddedChannels(channels), nil)
}

// inOut says that a kernel may change x.
func (x *tensor) inOut() *tensor {
	x.before = nil
	return x
}

func (x *tensor) pointer() kernels.Pointer { return x.mem.Pointer() }

// rowsOf is the number of rows of a logical shape.
func rowsOf(shape []int) int {
	rows := shape[0]
	for _, s := range shape[2:] {
		rows *= s
	}
	return rows
}

// rows is a map of a logical NC… shape; nil values leave it poisoned.
func (d *device) rows(name string, shape []int, values []float32) *tensor {
	d.Helper()
	padded := kernels.PaddedChannels(shape[1])
	pitch, margin := padded, 0
	if d.gap {
		pitch, margin = padded+16, 8
	}
	x := d.alloc(name, rowsOf(shape)*pitch*d.typ.Bytes())
	x.typ, x.shape, x.pitch, x.margin = d.typ, shape, pitch, margin
	if values == nil {
		return x
	}
	all := x.mem.Values(x.typ) // NaN beside the map
	spatial := rowsOf(shape) / shape[0]
	for row := range rowsOf(shape) {
		for c := range padded {
			v := float32(0)
			if c < shape[1] {
				v = values[(row/spatial*shape[1]+c)*spatial+row%spatial]
			}
			all[row*pitch+margin+c] = v
		}
	}
	x.mem.Store(x.typ, all)
	x.before = bytes.Clone(x.mem.Bytes())
	return x
}

// m is the map of x, the absent one of nil.
func (x *tensor) m() kernels.FeatureMap {
	if x == nil {
		return kernels.FeatureMap{}
	}
	return kernels.FeatureMap{Data: x.pointer(), Pitch: x.pitch}.Channels(x.typ, x.margin)
}

// logical returns the values of a map in NC… order. It checks that the padding is zero and that
// the memory around the map is unchanged.
func (d *device) logical(x *tensor) []float64 {
	d.Helper()
	all := x.mem.Values(x.typ)
	channels := x.shape[1]
	spatial := rowsOf(x.shape) / x.shape[0]
	out := make([]float64, rowsOf(x.shape)*channels)
	for row := range rowsOf(x.shape) {
		for c := range x.pitch {
			v, channel := all[row*x.pitch+c], c-x.margin
			switch {
			case channel >= 0 && channel < channels:
				out[(row/spatial*channels+channel)*spatial+row%spatial] = float64(v)
			case channel >= 0 && channel < kernels.PaddedChannels(channels):
				if v != 0 {
					d.Fatalf("%s: row %d has %g in the padding (channel %d of %d)", x.name, row, v, channel, channels)
				}
			case v == v:
				d.Fatalf("%s: row %d has %g beside the map (channel %d of %d)", x.name, row, v, channel, channels)
			}
		}
	}
	return out
}

// values are the first n numbers of an array.
func (x *tensor) values(n int) []float64 {
	out := make([]float64, n)
	for i, v := range x.mem.Values(x.typ)[:n] {
		out[i] = float64(v)
	}
	return out
}

// run launches all of an operation.
func (d *device) run(launches []kernels.Launch, err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
	chunks := 0
	for _, l := range launches {
		if d.gap {
			l, chunks = regroup(d.T, l, chunks)
		}
		if err := d.sim.Launch(l); err != nil {
			d.Fatal(err)
		}
	}
}

// near demands got within a rounding to typ, the relative and the absolute
// tolerance of want.
func (d *device) near(what string, typ kernels.ElementType, got, want []float64, relative, absolute float64) {
	d.Helper()
	if len(got) != len(want) {
		d.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		limit := (unit(typ)+relative)*math.Abs(w) + absolute + smallest(typ)
		if math.IsNaN(w) && math.IsNaN(got[i]) {
			continue
		}
		if !(math.Abs(got[i]-w) <= limit) {
			d.Fatalf("%s: value %d is %.9g, want %.9g ± %.2g", what, i, got[i], w, limit)
		}
	}
}

func int64Arg(v []float32) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i])
	}
	return out
}

func elements(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}

// operand is an input of a kernel of engine/reference.
type operand struct {
	shape  []int
	values []float32
	state  bool // kept, and returned changed
}

// truth runs one kernel on engine/reference in float64: its outputs, then its states.
func truth(t *testing.T, op plan.Op, attr plan.KernelAttr, in []operand, out ...[]int) [][]float64 {
	t.Helper()
	p := &plan.Program{Loss: -1, Forward: 1}
	k := plan.Kernel{Op: op, Name: "layer", Attr: attr}
	add := func(role plan.TensorRole, name string, shape []int) int {
		p.Tensors = append(p.Tensors, plan.Tensor{Name: name, Shape: shape, Role: role})
		return len(p.Tensors) - 1
	}
	for i, x := range in {
		role, list := plan.Input, &p.Inputs
		if x.state {
			role, list = plan.State, &p.States
		}
		id := add(role, fmt.Sprint("in", i), x.shape)
		*list, k.In = append(*list, id), append(k.In, id)
	}
	for i, shape := range out {
		id := add(plan.Output, fmt.Sprint("out", i), shape)
		p.Outputs, k.Out = append(p.Outputs, id), append(k.Out, id)
	}
	p.Kernels = []plan.Kernel{k}
	o := engine.DefaultOptions()
	o.Device, o.Precision = "reference", "fp64"
	e, err := reference.New(o)
	if err != nil {
		t.Fatal(err)
	}
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range in {
		if o.state {
			err = x.Set(fmt.Sprint("in", i), int64Arg(o.values))
		} else {
			err = x.SetInput(fmt.Sprint("in", i), o.values)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := x.Step(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	var all [][]float64
	for i, shape := range out {
		v := make([]float32, elements(shape))
		if err := x.Output(fmt.Sprint("out", i), v); err != nil {
			t.Fatal(err)
		}
		all = append(all, int64Arg(v))
	}
	for i, o := range in {
		if o.state {
			v, err := x.Get(fmt.Sprint("in", i))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
		}
	}
	return all
}

func float32s(v []float64) []float32 {
	out := make([]float32, len(v))
	for i := range v {
		out[i] = float32(v[i])
	}
	return out
}

func words(b []byte) []uint32 {
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

// regroup gives a launch fewer blocks, so that small shapes make every thread's loop
// turn more than once, as large ones do: chunks of a number of rows that the block's
// height does not divide, a grid of one block where the kernel goes on in strides.
// chunks is what the reduction before has left to a kernel that adds up.
func regroup(t *testing.T, l kernels.Launch, chunks int) (kernels.Launch, int) {
	t.Helper()
	l.Args = bytes.Clone(l.Args)
	var kernel kernels.Kernel
	for _, k := range kernels.ListKernels() {
		if k.Name == l.Kernel {
			kernel = k
		}
	}
	offsets, _ := kernel.Offsets()
	at := map[string]int{}
	for i, p := range kernel.Params {
		at[p.Name] = offsets[i]
	}
	le := binary.LittleEndian
	per, chunked := at["rows_per_chunk"]
	total, strided := at["rows"], false
	for _, name := range []string{"copy_channels", "bce_backward", "softmax_ce_backward", "l1_backward", "dice_bce_backward", "head_forward", "adam", "sgd", "cast", "normalize", "augment", "fill", "take", "grad", "bn_join", "statistics_"} {
		strided = strided || strings.HasPrefix(l.Kernel, name)
	}
	switch {
	case l.Kernel == "bn_finalize", l.Kernel == "bn_moments":
		le.PutUint32(l.Args[at["chunks"]:], uint32(chunks))
		le.PutUint64(l.Args[per:], longChunk)
	case l.Kernel == "sum_chunks":
		le.PutUint32(l.Args[at["chunks"]:], uint32(chunks))
	case chunked:
		rows := int(le.Uint64(l.Args[total:]))
		if old := int(le.Uint64(l.Args[per:])); old > longChunk {
			t.Fatalf("%s has chunks of %d rows: the test's are to be longer", l.Kernel, old)
		}
		chunks = (rows + longChunk - 1) / longChunk
		l.Grid[1] = uint32(chunks)
		le.PutUint64(l.Args[per:], longChunk)
	case strings.HasPrefix(l.Kernel, "max_pool"), strings.HasPrefix(l.Kernel, "avg_pool"), strings.HasPrefix(l.Kernel, "pad_"):
		l.Grid[1] = 1
	case strided:
		l.Grid[0] = 1
	}
	return l, chunks
}

// longChunk is more than the highest block's 256 rows; a prime.
const longChunk = 769
