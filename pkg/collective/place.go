package collective

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/runs/flight"
)

// rankLocation is where a rank runs. Its first four fields identify the process.
type rankLocation struct {
	pid       int
	startTime uint64 // in clock ticks since boot; 0: unknown, or the process does not handle requests
	namespace uint64 // of pid
	boot      uint64 // a hash of the ID of the boot of its machine
	host      string
}

// maxHostNameBytes is the longest host name that ShareHosts sends; a longer one is cut.
const maxHostNameBytes = 63

func ownLocation() rankLocation {
	p := rankLocation{pid: os.Getpid(), namespace: process.PIDNamespace()}
	p.startTime, _ = process.ReadStat(p.pid)
	boot := fnv.New32a() // a float64 holds it
	_, _ = boot.Write([]byte(process.BootID()))
	p.boot = uint64(boot.Sum32())
	var err error
	if p.host, err = os.Hostname(); err != nil {
		p.host = "an unknown host"
	}
	return p
}

func (p rankLocation) encode(v []float64) {
	v[0], v[1], v[2], v[3] = float64(p.pid), float64(p.startTime), float64(p.namespace), float64(p.boot)
	v[4] = float64(min(len(p.host), maxHostNameBytes))
	for i := range min(len(p.host), maxHostNameBytes) {
		v[5+i] = float64(p.host[i])
	}
}

const encodedLocationLength = 5 + maxHostNameBytes

func decodeLocation(v []float64) rankLocation {
	name := make([]byte, min(maxHostNameBytes, max(0, int(v[4]))))
	for i := range name {
		name[i] = byte(v[5+i])
	}
	return rankLocation{int(v[0]), uint64(v[1]), uint64(v[2]), uint64(v[3]), string(name)}
}

// ShareHosts exchanges the process IDs and hosts of all ranks, for error messages. All ranks must
// call it. They must call HandleRequests first, because other ranks may afterwards send requests to
// this process.
func (r *Recorder) ShareHosts(ctx context.Context) error {
	all := make([]float64, encodedLocationLength*r.Size())
	own := ownLocation()
	r.mu.Lock()
	if !r.answers {
		own.startTime = 0
	}
	r.mu.Unlock()
	own.encode(all[encodedLocationLength*r.Rank():][:encodedLocationLength])
	if err := r.AllGather(ctx, device.Buffer{F64: all}); err != nil {
		return fmt.Errorf("share hosts: %w", err)
	}
	places := make([]rankLocation, r.Size())
	for rank := range places {
		places[rank] = decodeLocation(all[encodedLocationLength*rank:][:encodedLocationLength])
	}
	r.mu.Lock()
	r.places = places
	r.mu.Unlock()
	return nil
}

// HandleRequests makes SIGUSR2 write the record of r until stop is called. Afterwards the signal
// does nothing, instead of ending the process: another rank may still send it.
func (r *Recorder) HandleRequests() (stop func()) {
	asked, done, ended := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(asked, syscall.SIGUSR2)
	r.mu.Lock()
	r.answers = true
	r.mu.Unlock()
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-asked:
				if err := r.Write(nil); err != nil {
					fmt.Fprintln(os.Stderr, "note: write record of collectives:", err)
				}
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// rankStackFinder finds the stack of the first rank that an error names.
type rankStackFinder struct {
	mu   sync.Mutex // held while a rank is asked
	rank int
	text string // what find returned; empty: it has not been called
}

const (
	stackTimeout  = 5 * time.Second
	stackInterval = 20 * time.Millisecond
)

// findStack returns the stack of rank, or why there is none. It asks only the first rank for which it is
// called, and adds the reason for a missing stack to the record of r. For other ranks, it returns
// that they were not asked.
func (f *rankStackFinder) findStack(r *Recorder, rank int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.text == "":
	case f.rank == rank:
		return f.text
	default:
		return "no stack: it was not asked, because rank " + fmt.Sprint(f.rank) + " was missing first"
	}
	f.rank = rank
	frames, reason := r.askForStack(rank)
	if reason == "" {
		f.text = "its stack is in " + filepath.Join(r.dir, flight.StacksName(rank))
		if len(frames) > 0 {
			f.text += ": " + flight.FormatStack(frames)
		}
		return f.text
	}
	f.text = "no stack: " + reason
	r.mu.Lock()
	r.lost = &flight.Lost{Rank: rank, Reason: reason}
	r.mu.Unlock()
	_ = r.writeRecord(nil) // the error of the operation is the one to report
	return f.text
}

// askForStack sends SIGUSR2 to rank's process, and returns its stack or why there is none.
func (r *Recorder) askForStack(rank int) (frames []string, reason string) {
	r.mu.Lock()
	p, own := r.places[rank], r.places[r.Rank()]
	r.mu.Unlock()
	switch {
	case p.startTime == 0:
		return nil, "its process writes none"
	case p.boot != own.boot || p.namespace != own.namespace:
		return nil, fmt.Sprintf("it runs on another host or in another container; send SIGUSR2 to process %d on %s", p.pid, p.host)
	}
	// On Linux, FindProcess keeps a reference to the process (pidfd), so that the signal cannot reach
	// another one that gets its ID, once the start time has shown that it is the right one.
	other, err := os.FindProcess(p.pid)
	if err != nil {
		return nil, endedReason
	}
	defer func() { _ = other.Release() }()
	if reason := p.explainMissingStack(); reason != "" {
		return nil, reason
	}
	asked := time.Now()
	if err := other.Signal(syscall.SIGUSR2); err != nil {
		return nil, fmt.Sprintf("ask its process with SIGUSR2: %v", err)
	}
	var waited process.Stopwatch
	for waited.Elapsed() < stackTimeout {
		time.Sleep(stackInterval)
		if record, err := flight.ReadFile(r.dir, flight.FileName(rank)); err == nil && record.PID == p.pid && !record.Written.Before(asked) {
			return record.Stack, ""
		}
		if reason := p.explainMissingStack(); reason != "" {
			return nil, reason
		}
	}
	return nil, fmt.Sprintf("its process did not answer SIGUSR2 within %v%s", stackTimeout, p.describeKernelState())
}

const endedReason = "its process has ended"

// explainMissingStack returns why the process cannot write its stack, or "" if it can. The process
// is on this host.
func (p rankLocation) explainMissingStack() string {
	startTime, state := process.ReadStat(p.pid)
	switch {
	case !process.IsLiveState(state) || startTime != p.startTime:
		return endedReason
	case state == process.StateStopped:
		return "its process is stopped (state T, for example by SIGSTOP)"
	case state == process.StateTraced:
		return "its process is stopped by a debugger (state t)"
	}
	return ""
}

// describeKernelState returns the state of the process and the kernel function in which it
// sleeps, as far as they can be read.
func (p rankLocation) describeKernelState() string {
	_, state := process.ReadStat(p.pid)
	text := fmt.Sprintf("; it is in state %c", state)
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", p.pid)); err == nil && len(name) > 0 && string(name) != "0" {
		text += ", in the kernel function " + strings.TrimSpace(string(name))
	}
	return text
}
