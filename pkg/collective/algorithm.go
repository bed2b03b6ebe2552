package collective

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/collective/internal/numbers"
	"lockstep/pkg/collective/schedule"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
)

// Values of Options.Algorithm, in addition to the names in package schedule.
const (
	// AlgorithmDirect lets all ranks add up their shards in shared memory. Sockets do not
	// support it.
	AlgorithmDirect = "direct"
	// AlgorithmAuto selects an algorithm for each size of buffer after a short measurement
	// (see Tune). With three or more ranks the algorithms add in different orders, so two
	// runs may differ in the last bits; select what Name lists to repeat a run exactly.
	AlgorithmAuto = "auto"
)

// Algorithms returns all names of algorithms.
func Algorithms() []string {
	return append([]string{AlgorithmAuto, AlgorithmDirect}, schedule.Names()...)
}

// CheckAlgorithm returns an error if name is not a value of Options.Algorithm.
func CheckAlgorithm(name string) error {
	if name == "" || slices.Contains(Algorithms(), name) {
		return nil
	}
	return fmt.Errorf("unknown algorithm %q of all-reduce%s: use %s, or leave it unset", name, nearest.Hint(name, Algorithms()), english.JoinOr(Algorithms()))
}

// algorithmNumber returns the number of an algorithm in the signature of a call (see
// callSignature), or 0 for AlgorithmDirect.
func algorithmNumber(name string) int { return slices.Index(schedule.Names(), name) + 1 }

func algorithmName(number uint64) string {
	if names := schedule.Names(); number >= 1 && number <= uint64(len(names)) {
		return names[number-1]
	}
	return AlgorithmDirect
}

// algorithmSelector selects the algorithm of each all-reduce of one rank.
type algorithmSelector struct {
	native     string // of the transport, without a schedule
	name       string // the algorithm, or AlgorithmAuto
	rank       int
	topology   schedule.Topology
	bySize     []string // with AlgorithmAuto, after Tune: the algorithm for each of tunedBytes
	schedules  map[scheduleKey]*rankSchedule
	candidates []string // for AlgorithmAuto
}

type scheduleKey struct {
	name   string
	pieces int
}

type rankSchedule struct {
	chunks int
	steps  []rankStep
	record func(t schedule.Transfer, e transferEvent) // is called at each event of a transfer; nil: not recorded
}

// transferEvent is an event of a transfer whose time is recorded.
type transferEvent int

const (
	transferSent transferEvent = iota
	transferWaited
	transferReceived
	transferEvents // number of events
)

func (s *rankSchedule) recordEvent(t schedule.Transfer, e transferEvent) {
	if s.record != nil {
		s.record(t, e)
	}
}

// rankStep is one rank's part of one step: first it sends, then it receives.
type rankStep struct{ sends, receives []schedule.Transfer }

// newAlgorithmSelector returns the selector of a rank. native is the algorithm that the transport
// uses without a schedule. o has been validated.
func newAlgorithmSelector(o Options, native string, rank, size int) algorithmSelector {
	a := algorithmSelector{
		native: native, name: o.Algorithm, rank: rank,
		topology:  schedule.Topology{Ranks: size, PerNode: o.RanksPerNode},
		schedules: map[scheduleKey]*rankSchedule{},
	}
	a.name = cmp.Or(a.name, native)
	a.candidates = []string{native}
	for _, name := range schedule.Names() {
		if name != native && (name != schedule.Hierarchical || o.RanksPerNode > 0 && o.RanksPerNode < size) {
			a.candidates = append(a.candidates, name)
		}
	}
	return a
}

// tunedBytes returns the buffer sizes for which Tune compares the algorithms.
func tunedBytes() []int { return []int{1 << 10, 1 << 14, 1 << 18, 1 << 22} }

func (a *algorithmSelector) chooseForSize(n int) string {
	if a.name != AlgorithmAuto {
		return a.name
	}
	best, distance := a.native, math.Inf(1)
	for i, name := range a.bySize {
		if d := math.Abs(math.Log(float64(max(n, 1)) / float64(tunedBytes()[i]))); d < distance {
			best, distance = name, d
		}
	}
	return best
}

// nameWithAlgorithm returns the name of a transport and the algorithm, as in "tcp, halving" for "tcp ring".
// It returns transport unchanged for the native algorithm. With AlgorithmAuto, it lists the
// algorithms by buffer size.
func (a *algorithmSelector) nameWithAlgorithm(transport string) string {
	if a.name == a.native {
		return transport
	}
	transport = strings.Replace(transport, " ring", "", 1)
	if a.name == AlgorithmAuto {
		if len(a.bySize) == 0 {
			return transport + ", auto"
		}
		var parts []string
		for i, name := range a.bySize {
			if i == 0 || name != a.bySize[i-1] {
				parts = append(parts, fmt.Sprintf("%s near %d B", name, tunedBytes()[i]))
			}
		}
		return transport + ", auto: " + strings.Join(parts, ", ")
	}
	return transport + ", " + a.name
}

// findSchedule returns this rank's part of the schedule of an algorithm for a buffer of n bytes.
func (a *algorithmSelector) findSchedule(name string, n int) (*rankSchedule, error) {
	key := scheduleKey{name, schedule.Pieces(n)}
	if s := a.schedules[key]; s != nil {
		return s, nil
	}
	full, err := schedule.New(name, a.topology, key.pieces)
	if err != nil {
		return nil, err
	}
	s := &rankSchedule{chunks: full.Chunks, steps: make([]rankStep, full.Steps())}
	for _, t := range full.Of(a.rank) {
		step := &s.steps[t.Step]
		if t.From == a.rank {
			step.sends = append(step.sends, t)
		} else {
			step.receives = append(step.receives, t)
		}
	}
	a.schedules[key] = s
	return s, nil
}

// byteExchanger sends and receives bytes for a schedule.
type byteExchanger interface {
	// post begins to send p, which must not change until flush returns.
	post(to int, p []byte)
	// receive calls use for the next n bytes from a rank, in parts that are multiples of 8
	// bytes except the last, and are aligned for numbers.
	receive(ctx context.Context, from, n int, use func(part []byte)) error
	// flush waits until everything is sent.
	flush(ctx context.Context) error
}

func runSchedule[T numbers.Number](ctx context.Context, x byteExchanger, s *rankSchedule, b []T) error {
	part := func(t schedule.Transfer) []T {
		lo, _ := Shard(len(b), s.chunks, t.Lo)
		_, hi := Shard(len(b), s.chunks, t.Hi-1)
		return b[lo:hi]
	}
	for _, step := range s.steps {
		for _, t := range step.sends {
			s.recordEvent(t, transferSent)
			x.post(t.To, numbers.AsBytes(part(t)))
		}
		for _, t := range step.receives {
			rest := part(t)
			s.recordEvent(t, transferWaited)
			err := x.receive(ctx, t.From, len(numbers.AsBytes(rest)), func(p []byte) {
				got := numbers.ReinterpretBytes[T](p)
				if own := rest[:len(got)]; t.Add {
					numbers.Add(own, got, own)
				} else {
					copy(own, got)
				}
				rest = rest[len(got):]
			})
			if err != nil {
				return err
			}
			s.recordEvent(t, transferReceived)
		}
		if err := x.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

func runScheduleOn(ctx context.Context, x byteExchanger, s *rankSchedule, b device.Buffer) error {
	if b.F64 != nil {
		return runSchedule(ctx, x, s, b.F64)
	}
	return runSchedule(ctx, x, s, b.F32)
}

// Parameters of the measurement in Tune.
const (
	tuneRepeats = 3
	// maxTuneTime is how long Tune measures. For sizes that are left out, it selects the
	// algorithm of the largest size that was measured.
	maxTuneTime = time.Second
)

// tunableGroup is implemented by groups that can select an algorithm.
type tunableGroup interface {
	Group
	selection() *algorithmSelector
}

func (g *memoryGroup) selection() *algorithmSelector { return &g.algorithm }
func (r *Ring) selection() *algorithmSelector        { return &r.algorithm }

// Tune measures which algorithm is fastest for each buffer size, and selects it. It does nothing
// unless Options.Algorithm is AlgorithmAuto. All ranks must call it before any operation; the times
// of rank 0 decide for all. rendezvous.Join calls it.
func Tune(ctx context.Context, g Group) error {
	t, ok := g.(tunableGroup)
	if !ok || t.selection().name != AlgorithmAuto || g.Size() == 1 {
		return nil
	}
	if err := tuneGroup(ctx, t); err != nil {
		return fmt.Errorf("select algorithm of all-reduce: %w", err)
	}
	return nil
}

func tuneGroup(ctx context.Context, g tunableGroup) error {
	a, begin := g.selection(), time.Now()
	sizes := tunedBytes()
	defer func() { a.name = AlgorithmAuto }()
	choice := device.Buffer{F64: make([]float64, len(sizes))} // index of the candidate for each size
	for i, n := range sizes {
		goOn := device.Buffer{F64: []float64{0}}
		if i == 0 || time.Since(begin) < maxTuneTime {
			goOn.F64[0] = 1
		}
		if err := g.Broadcast(ctx, goOn, 0); err != nil {
			return err
		}
		if goOn.F64[0] == 0 {
			choice.F64[i] = choice.F64[i-1]
			continue
		}
		fastest := math.Inf(1)
		for k, name := range a.candidates {
			a.name = name
			seconds, err := timeAllReduce(ctx, g, n)
			if err != nil {
				return err
			}
			if seconds < fastest {
				fastest, choice.F64[i] = seconds, float64(k)
			}
		}
	}
	if err := g.Broadcast(ctx, choice, 0); err != nil {
		return err
	}
	for _, k := range choice.F64 {
		a.bySize = append(a.bySize, a.candidates[int(k)])
	}
	return nil
}

// timeAllReduce runs some all-reduces of n bytes, and returns the shortest time in seconds. The
// first one does not count.
func timeAllReduce(ctx context.Context, g Group, n int) (float64, error) {
	b := device.Buffer{F32: make([]float32, n/4)}
	best := math.Inf(1)
	for i := range 1 + tuneRepeats {
		begin := time.Now()
		if err := g.AllReduce(ctx, b); err != nil {
			return 0, err
		}
		if i > 0 {
			best = min(best, time.Since(begin).Seconds())
		}
	}
	return best, nil
}
