package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/english"
)

// floodTargetRatio is the required speed during a flood, relative to the speed without: epochs
// take less than 5 % longer.
const floodTargetRatio = 1 / 1.05

// FloodOptions configures MeasureFlood.
type FloodOptions struct {
	Config  string // config of lockstep train; empty: unet2d-cells
	Workers int
	Rate    int // connections per second
	Repeats int
	Epochs  int // of each measurement
	Output  io.Writer
}

// Validate returns an error for the first invalid option.
func (o FloodOptions) Validate() error {
	const fastest = 10_000
	switch {
	case o.Workers < 2:
		return fmt.Errorf("bench flood: got %d workers, want at least 2: one alone has no port", o.Workers)
	case o.Rate < 1 || o.Rate > fastest:
		return fmt.Errorf("bench flood: got %d connections per second, want 1 to %d", o.Rate, fastest)
	case o.Repeats < 1 || o.Epochs < 1:
		return fmt.Errorf("bench flood: got %d repeats of %d epochs, want at least 1", o.Repeats, o.Epochs)
	}
	return nil
}

// The measurements of each repeat of bench flood.
const (
	floodNone    = iota
	floodJob     // of the port of the job's rank 0
	floodControl // of a port on which no process listens, which shows what the flooder itself costs
	floodCount
)

// MeasureFlood trains, and meanwhile this process connects to the port of rank 0 again and again, as
// strangers do who send noise, or nothing, or a wrong proof of the token. It compares the
// speed with that of epochs without a flood, and of epochs during the same flood of a closed port
// that has nothing to do with the job: the flooder uses the same cores as the workers.
func MeasureFlood(ctx context.Context, o FloodOptions) ([]Record, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Config == "" {
		o.Config = "unet2d-cells"
	}
	m := floodMeasurement{FloodOptions: o}
	if err := m.run(ctx); err != nil {
		return nil, fmt.Errorf("bench flood: %w", comparison.ContextCause(ctx, err))
	}
	common := Record{Unit: "samples/s", Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx)}
	name := fmt.Sprintf("%s, %s", o.Config, english.Count(o.Workers, "worker"))
	flooded, control, pair := common, common, common
	flooded.Name, flooded.Peer, flooded.Target = "flood of the job's port, "+name, "no flood", floodTargetRatio
	control.Name, control.Peer = "flood of another port, "+name, "no flood"
	pair.Name, pair.Peer = "flood of the job's port, "+name, "flood of another port"
	flooded.Note, control.Note = m.floods[floodJob].describe(), m.floods[floodControl].describe()
	return []Record{
		comparison.Compare(flooded, m.rates[floodJob], m.rates[floodNone]),
		comparison.Compare(control, m.rates[floodControl], m.rates[floodNone]),
		comparison.Compare(pair, m.rates[floodJob], m.rates[floodControl]),
	}, nil
}

// floodMeasurement contains the results of MeasureFlood.
type floodMeasurement struct {
	FloodOptions
	rates  [floodCount][]float64 // samples per second
	floods [floodCount]floodStats
}

// run does all measurements, in an order that is reversed in each repeat.
func (m *floodMeasurement) run(ctx context.Context) error {
	all := []training{{config: m.Config, workers: m.Workers, unrecorded: true}}
	if err := bindAll(all); err != nil {
		return err
	}
	r, err := all[0].start(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := r.trainEpochs(1); err != nil {
		return err
	}
	unused, err := rendezvous.FindFreePort(ctx)
	if err != nil {
		return err
	}
	ports := [floodCount]int{floodJob: r.copies[0].Port, floodControl: unused}
	order := []int{floodNone, floodJob, floodControl}
	for i := range m.Repeats {
		for _, kind := range order {
			rate, err := m.measureEpochs(ctx, r, kind, ports[kind])
			if err != nil {
				return err
			}
			m.rates[kind] = append(m.rates[kind], rate)
		}
		slices.Reverse(order)
		comparison.Logf(m.Output, "repeat %d: %.4g samples/s, with flood %.4g, with flood of another port %.4g", i+1, m.rates[floodNone][i], m.rates[floodJob][i], m.rates[floodControl][i])
	}
	return nil
}

// measureEpochs returns the throughput of the next epochs during a flood of the given kind.
func (m *floodMeasurement) measureEpochs(ctx context.Context, r *runningTraining, kind, port int) (float64, error) {
	if kind == floodNone {
		return r.trainEpochs(m.Epochs)
	}
	flooding, stop := context.WithCancel(ctx)
	var strangers sync.WaitGroup
	strangers.Go(func() { m.floods[kind].flood(flooding, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), m.Rate) })
	rate, err := r.trainEpochs(m.Epochs)
	stop()
	strangers.Wait()
	return rate, err
}

// floodStats counts what a flooder did.
type floodStats struct {
	seconds, cpuSeconds         float64
	refused, accepted, admitted atomic.Int64 // connections
}

// describe returns a sentence about the flood.
func (f *floodStats) describe() string {
	n := float64(f.refused.Load() + f.accepted.Load())
	return fmt.Sprintf("%.0f connections/s (%d refused, %d accepted, %d let in); the flooder used %.1f %% of a core",
		n/f.seconds, f.refused.Load(), f.accepted.Load(), f.admitted.Load(), 100*f.cpuSeconds/f.seconds)
}

// The most connections that a flooder has at a time, and how long each may last.
const (
	maxStrangers    = 200
	strangerTimeout = 5 * time.Second
)

// flood connects to address at the given rate per second until ctx ends. It adds the processor time of this
// process, which does nothing else meanwhile.
func (f *floodStats) flood(ctx context.Context, address string, rate int) {
	begin, cpu := time.Now(), processorSeconds()
	ticks := time.NewTicker(time.Second / time.Duration(rate))
	defer ticks.Stop()
	places := make(chan struct{}, maxStrangers)
	var all sync.WaitGroup
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			all.Wait()
			f.seconds, f.cpuSeconds = f.seconds+time.Since(begin).Seconds(), f.cpuSeconds+processorSeconds()-cpu
			return
		case <-ticks.C:
		}
		select {
		case places <- struct{}{}:
			all.Go(func() {
				f.connect(ctx, address, i%strangerKinds)
				<-places
			})
		default: // all are connected
		}
	}
}

// The kinds of strangers.
const (
	strangerNoise  = iota // sends noise without an end
	strangerSilent        // sends nothing
	strangerGuess         // guesses the token
	strangerKinds
)

// connect makes one connection of the given kind.
func (f *floodStats) connect(ctx context.Context, address string, kind int) {
	c, err := (&net.Dialer{Timeout: strangerTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		if ctx.Err() == nil {
			f.refused.Add(1)
		}
		return
	}
	f.accepted.Add(1)
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_ = c.SetDeadline(time.Now().Add(strangerTimeout))
	switch kind {
	case strangerNoise:
		noise := strings.Repeat("x", 4096)
		for err == nil {
			_, err = io.WriteString(c, noise)
		}
	case strangerSilent:
		_, _ = io.Copy(io.Discard, c)
	default:
		lines := bufio.NewReader(c)
		if _, err := lines.ReadString('\n'); err != nil { // the greeting
			return
		}
		_, _ = io.WriteString(c, `{"nonce":"00","claim":{"rank":1,"world":2},"proof":"00"}`+"\n")
		if reply, err := lines.ReadString('\n'); err == nil && !strings.Contains(reply, `"error"`) {
			f.admitted.Add(1)
		}
	}
}

// processorSeconds returns the time that the processor has spent on this process so far, in the kernel too.
func processorSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Seconds()
}
