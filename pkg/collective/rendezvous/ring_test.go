package rendezvous

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// exchange makes each rank send its rank to each other rank, and checks what arrives.
func exchange(groups []collective.Group) error {
	ctx := context.Background()
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() {
			for to := range groups {
				if to != i {
					errs[i] = errors.Join(errs[i], g.Send(ctx, device.Buffer{F64: []float64{float64(i)}}, to))
				}
			}
			for from := range groups {
				if from == i {
					continue
				}
				b := device.Buffer{F64: make([]float64, 1)}
				if err := g.Recv(ctx, b, from); err != nil || b.F64[0] != float64(from) {
					errs[i] = errors.Join(errs[i], err, fmt.Errorf("rank %d got %v from rank %d", i, b.F64, from))
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// addUp makes every rank contribute 1 to an all-reduce, and checks the sums.
func addUp(groups []collective.Group) error {
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() {
			b := device.Buffer{F64: []float64{1, float64(g.Rank())}}
			n := float64(g.Size())
			if errs[i] = g.AllReduce(context.Background(), b); errs[i] == nil && (b.F64[0] != n || b.F64[1] != n*(n-1)/2) {
				errs[i] = fmt.Errorf("rank %d got %v", g.Rank(), b.F64)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// TestTransports checks that the requested transport is used, or else the one that fits the
// machines.
func TestTransports(t *testing.T) {
	for _, tt := range []struct {
		collective string
		machines   []string // by rank
		want       string
		err        []string // by rank
	}{
		{"", []string{"a", "a", "a"}, "shared memory", nil},
		{"shm", []string{"a", "a"}, "shared memory", nil},
		{"unix", []string{"a", "a"}, "unix ring", nil},
		{"unix", []string{"a", "a", "a", "a", "a"}, "unix ring", nil},
		{"tcp", []string{"a", "a", "a"}, "tcp ring", nil},
		{"", []string{"a", "a", "b"}, "tcp ring", nil},
		{"tcp", []string{"a", "b", "b", "c"}, "tcp ring", nil},
		{"shm", []string{"a", "b"}, "", []string{"LOCKSTEP_COLLECTIVE is shm, which joins workers of one machine, but rank 1 is on", "set it to tcp"}},
		{"unix", []string{"a", "a", "b"}, "", []string{"LOCKSTEP_COLLECTIVE is unix", "rank 2 is on", "rank 2 is on"}},
		{"nccl", []string{"a", "a"}, "", []string{`invalid LOCKSTEP_COLLECTIVE "nccl": use shm (shared memory), unix or tcp`, `invalid LOCKSTEP_COLLECTIVE "nccl"`}},
		{"mpi", []string{"a", "a"}, "", []string{"no mpirun has started this process", "no mpirun has started this process"}},
	} {
		t.Run(fmt.Sprintf("%s on %s", tt.collective, strings.Join(tt.machines, "")), func(t *testing.T) {
			envs, options := run(t, len(tt.machines), Options{})
			for r := range envs {
				envs[r].Collective, options[r].machine = tt.collective, tt.machines[r]
			}
			groups, errs := join(context.Background(), envs, options)
			defer closeAll(t, groups)
			if tt.err != nil {
				for r, want := range tt.err {
					wantError(t, errs[r], want)
				}
				return
			}
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			if n := listening(t); n != 0 {
				t.Errorf("%d sockets of this process still listen", n)
			}
			for _, g := range groups {
				if g.Name() != tt.want {
					t.Errorf("rank %d is joined by %s, want %s", g.Rank(), g.Name(), tt.want)
				}
			}
			if err := errors.Join(addUp(groups), exchange(groups)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAlgorithmsOfRuns checks that all ranks use the algorithm that was asked for, also if their
// nodes have different numbers of ranks, and refuse different algorithms.
func TestAlgorithmsOfRuns(t *testing.T) {
	for _, transport := range []string{"shm", "tcp"} {
		for _, algorithm := range []string{"hierarchical", "tree", "auto"} {
			envs, options := run(t, 3, Options{})
			for r := range envs {
				envs[r].Collective, envs[r].Algorithm, envs[r].LocalWorld = transport, algorithm, 2-r/2
			}
			groups, errs := join(context.Background(), envs, options)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(addUp(groups), exchange(groups)); err != nil || !strings.Contains(groups[2].Name(), ", "+algorithm) || groups[2].Name() != groups[0].Name() {
				t.Errorf("%s, %s: %v", groups[2].Name(), groups[0].Name(), err)
			}
			closeAll(t, groups)
		}
	}
	envs, options := run(t, 2, Options{})
	envs[1].Algorithm = "tree"
	groups, errs := join(context.Background(), envs, options)
	closeAll(t, groups)
	wantError(t, errs[0], `has LOCKSTEP_ALGORITHM "tree", rank 0 has ""`)
}

// TestManyAddresses checks that the addresses of more ranks arrive than fit into a message.
func TestManyAddresses(t *testing.T) {
	addresses := make([]string, 1000)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("@lockstep-%098d", i)
	}
	here, there := net.Pipe()
	g, w := &authenticatedWorker{jsonConn: newJSONConn(here)}, newJSONConn(there)
	var sent error
	var wg sync.WaitGroup
	wg.Go(func() { sent = g.sendAddresses(context.Background(), addresses) })
	got, err := w.receiveAddresses(context.Background(), Env{World: len(addresses)}, Options{})
	wg.Wait()
	if err := errors.Join(err, sent, here.Close(), there.Close()); err != nil || !slices.Equal(got, addresses) {
		t.Errorf("got %d addresses, %v", len(got), err)
	}
}

// listening returns the number of listening sockets of this process, from /proc.
func listening(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil {
			own[to] = true
		}
	}
	n := 0
	for file, column := range map[string][3]any{ // state's column, its value, inode's column
		"tcp": {3, "0A", 9}, "tcp6": {3, "0A", 9}, "unix": {3, "00010000", 6},
	} {
		text, err := os.ReadFile("/proc/self/net/" + file)
		if err != nil {
			continue // no IPv6 here
		}
		for _, line := range strings.Split(string(text), "\n") {
			f := strings.Fields(line)
			if len(f) > column[2].(int) && f[column[0].(int)] == column[1] && own["socket:["+f[column[2].(int)]+"]"] {
				n++
			}
		}
	}
	return n
}

// TestListeningSeesListeners checks that listening counts listeners, so that a result of 0 is
// meaningful.
func TestListeningSeesListeners(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = newSocketName("linux", "")
		}
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		if n := listening(t); n != 1 {
			t.Errorf("%s: %d sockets listen, want 1", network, n)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWithoutAbstractSockets checks the transport and the names of sockets on systems other
// than Linux: the name is a file's, and is gone after the listener is closed.
func TestWithoutAbstractSockets(t *testing.T) {
	for goos, want := range map[string]string{"linux": "shm", "darwin": "unix", "freebsd": "unix"} {
		if got := localTransport(goos); got != want {
			t.Errorf("on %s, workers of one machine use %s by default, want %s", goos, got, want)
		}
	}
	if got := newSocketName("linux", t.TempDir()); got[0] != '@' {
		t.Errorf("on Linux the name is %q, want one that begins with @", got)
	}
	long := "/" + strings.Repeat("x", 80)
	for _, tt := range []struct{ temporary, want string }{
		{"/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T/", "/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T"}, // as on macOS
		{long, "/tmp"},
	} {
		got := newSocketName("darwin", tt.temporary)
		if filepath.Dir(got) != tt.want || len(got) > 103 {
			t.Errorf("the name in %s is %s, want a file in %s of at most 103 bytes", tt.temporary, got, tt.want)
		}
	}
	name := newSocketName("darwin", "/tmp")
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", name)
	if err == nil {
		err = c.Close()
	}
	if err = errors.Join(err, l.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", name, err)
	}
}

func TestRingMisfits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(e []Env, o []Options)
		want   []string // by rank
	}{
		{
			"collective", func(e []Env, _ []Options) { e[2].Collective = "unix" },
			// Rank 1 may come when all is over.
			[]string{`has LOCKSTEP_COLLECTIVE "unix", rank 0 has "tcp": set the same value on all workers`, "", "refused: rank 2"},
		},
		{
			"chunk size", func(_ []Env, o []Options) { o[2].Group.ChunkBytes = 64 },
			[]string{"rank 2: invalid chunk size 64 bytes: rank 0 has 0", "rank 2: invalid chunk size 64", "use the same chunk size on all ranks"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			envs, options := run(t, 3, Options{BuildID: "b", Timeout: 2 * time.Second})
			for r := range envs {
				envs[r].Collective = "tcp"
			}
			tt.change(envs, options)
			groups, errs := join(context.Background(), envs, options)
			closeAll(t, groups)
			for r, want := range tt.want {
				wantError(t, errs[r], fmt.Sprintf("join run as rank %d of", envs[r].Rank), want)
			}
		})
	}
}

// TestDoorOfARing checks that a ringListener accepts the previous rank for the ring, and the lower
// ranks for messages, once each.
func TestDoorOfARing(t *testing.T) {
	ctx := context.Background()
	e := Env{Rank: 2, World: 3, Token: "secret"}
	d, err := listenForRing(ctx, "tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	address := d.Addr().String()
	if host, _, _ := net.SplitHostPort(address); host != "127.0.0.1" {
		t.Errorf("the ringListener is at %s, want it on the address of the way to rank 0", address)
	}
	in := collective.Connections{Messages: make([]net.Conn, 3), Scheduled: make([]net.Conn, 3)}
	var ierr error
	var wg sync.WaitGroup
	wg.Go(func() { ierr = d.acceptRanks(ctx, e, &in) })

	noisy, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(noisy, "GET / HTTP/1.1\r\n\r\n")
	_ = noisy.Close()
	accepted := func(rank int, link string) *jsonConn {
		t.Helper()
		w, err := connectAndAuthenticate(ctx, "tcp", address, "secret", workerClaim{Rank: rank, World: 3, Link: link})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	out := []*jsonConn{accepted(0, "messages")}
	for _, tt := range []struct {
		token string
		claim workerClaim
		want  string
	}{
		{"guess", workerClaim{Rank: 1, World: 3, Link: "ring"}, "the worker's LOCKSTEP_TOKEN differs from this run's"},
		{"secret", workerClaim{Rank: 0, World: 3, Link: "ring"}, "rank 0 is not the rank before rank 2"},
		{"secret", workerClaim{Rank: 1, World: 3}, "rank 1 has no connection for this purpose to rank 2"}, // a proof for rank 0
		{"secret", workerClaim{Rank: 1, World: 4, Link: "messages"}, "rank 1 has no connection for this purpose to rank 2"},
		{"secret", workerClaim{Rank: 2, World: 3, Link: "messages"}, "rank 2 has no connection for this purpose to rank 2"},
		{"secret", workerClaim{Rank: -1, World: 3, Link: "scheduled"}, "rank -1 has no connection for this purpose to rank 2"},
		{"secret", workerClaim{Rank: 0, World: 3, Link: "messages"}, "rank 0 is connected to rank 2 already"},
	} {
		_, err := connectAndAuthenticate(ctx, "tcp", address, tt.token, tt.claim)
		wantError(t, err, tt.want)
	}
	out = append(out, accepted(1, "ring"), accepted(0, "scheduled"), accepted(1, "messages"), accepted(1, "scheduled"))
	wg.Wait()
	if ierr != nil {
		t.Fatal(ierr)
	}
	if in.From == nil || slices.Contains(in.Messages[:2], nil) || slices.Contains(in.Scheduled[:2], nil) || in.Messages[2] != nil || in.Scheduled[2] != nil {
		t.Errorf("accepted %v", in)
	}
	for _, w := range out {
		err = errors.Join(err, w.Close())
	}
	if err := errors.Join(err, in.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("the ringListener is open still")
	}
}

// TestNeighboursThatDoNotMeet checks that all ranks get an error if one rank cannot connect to
// the next one.
func TestNeighboursThatDoNotMeet(t *testing.T) {
	envs, options := run(t, 3, Options{Timeout: 10 * time.Second})
	for r := range envs {
		envs[r].Collective = "tcp"
	}
	// The substitute for rank 2 reports an address on which nobody listens.
	var wg sync.WaitGroup
	wg.Go(func() {
		me := workerClaim{Rank: 2, World: 3, Collective: "tcp", Machine: machineID()}
		w, err := connectToServer(context.Background(), envs[2], options[2], me)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = w.Close() }()
		var cmd serverCommand
		_ = w.receive(&cmd)
		_ = w.send(workerReport{Address: "127.0.0.1:1"})
		_ = w.receive(&cmd)
		_ = w.receive(&cmd)
		if !strings.Contains(cmd.Error, "connect to rank 2 at 127.0.0.1:1") {
			t.Errorf("rank 2 was told %q", cmd.Error)
		}
	})
	groups, errs := join(context.Background(), envs[:2], options)
	wg.Wait()
	closeAll(t, groups)
	wantError(t, errs[0], "rank 1: connect to rank 2 at 127.0.0.1:1", "connection refused", "must be able to reach the others")
	wantError(t, errs[1], "connect to rank 2 at 127.0.0.1:1", "connection refused")
}

// Environment variables of the workers that TestHostsInNamespaces starts.
const namespaceVariable = "RENDEZVOUS_TEST_NAMESPACE"

// lostVariable tells the workers of TestHostIsLost what they do when the host is lost.
const (
	lostVariable   = "RENDEZVOUS_TEST_LOST"
	lostWaiting    = "waits for its rank"
	lostExchanging = "is in the middle of an exchange with its rank"
	lostSending    = "sends to its rank, which is stopped"
)

// beWorker runs a worker of TestHostsInNamespaces: it joins the run that the environment
// describes and calls addUp. The workers of TestAlgorithmsBetweenHosts run addUpByAlgorithms.
func beWorker() error {
	if os.Getenv(algorithmsVariable) != "" {
		return addUpByAlgorithms()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	e, err := FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	g, err := Join(ctx, e, Options{machine: os.Getenv(namespaceVariable)})
	if err != nil {
		return err
	}
	if err := addUp([]collective.Group{g}); err != nil {
		return err
	}
	fmt.Println(g.Rank(), g.Name())
	// The host of rank 1 is about to be lost. Its rank goes on, and nobody receives what it sends.
	switch os.Getenv(lostVariable) {
	case lostWaiting:
		if g.Rank() == 1 {
			time.Sleep(time.Hour)
		}
		return g.Barrier(context.Background())
	case lostExchanging:
		b := device.Buffer{F32: make([]float32, 1<<22)} // 16 MiB: more than the kernels hold
		for err == nil {
			err = g.AllReduce(context.Background(), b)
		}
		return err
	case lostSending:
		b := device.Buffer{F32: make([]float32, 1<<24)} // 64 MiB: much more than the kernels hold
		for err == nil {
			err = g.Broadcast(context.Background(), b, 0)
		}
		return err
	default:
		return g.Close()
	}
}

// newHosts creates simulated hosts. The test is skipped where this is not possible.
func newHosts(t *testing.T, n int, l hostLink) *hostNetwork {
	t.Helper()
	network, err := createHosts(t.Context(), n, l)
	if errors.Is(err, errNotPermitted) || errors.Is(err, errNoNetem) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	return network
}

// hostCommand returns a worker that runs on a host with perHost workers.
func hostCommand(t *testing.T, network *hostNetwork, rank, world, perHost int) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host := rank / perHost
	argv := network.Command(host, self)
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = append(os.Environ(), namespaceVariable+"="+network.Name(host), "RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(world),
		"LOCAL_WORLD_SIZE="+strconv.Itoa(perHost), "MASTER_ADDR="+network.Address(0), "MASTER_PORT=29500", "LOCKSTEP_TOKEN=secret")
	return c
}

// TestHostsInNamespaces runs four workers on two simulated hosts. They share one kernel, so the
// test sets their machine IDs.
func TestHostsInNamespaces(t *testing.T) {
	network := newHosts(t, 2, hostLink{})
	var wg sync.WaitGroup
	for rank := range 4 {
		cmd := hostCommand(t, network, rank, 4, 2)
		wg.Go(func() {
			out, err := cmd.CombinedOutput()
			if want := fmt.Sprintf("%d tcp ring\n", rank); err != nil || string(out) != want {
				t.Errorf("rank %d: %v, said %q, want %q", rank, err, out, want)
			}
		})
	}
	wg.Wait()
}

// TestHostIsLost disconnects the cable of a host, so that no connection of its rank is closed.
// TCP keep-alive must notice it before the time-out, also while data are in flight.
// TestKeepAlive in package collective checks how soon the kernel does so.
func TestHostIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, doing := range []string{lostWaiting, lostExchanging, lostSending} {
		t.Run(doing, func(t *testing.T) {
			d, text := loseHost(t, doing)
			if want := "rank 1 is gone: its connection has ended"; !strings.Contains(text, want) {
				t.Errorf("rank 0 wrote %q after %v, want %q", text, d, want)
			}
			if d >= collective.DefaultTimeout {
				t.Errorf("rank 0 noticed it after %v, want less than the time-out of %v", d, collective.DefaultTimeout)
			}
		})
	}
}

// loseHost disconnects two hosts while their ranks do what doing describes. It returns the time
// until rank 0 ended, and its standard error.
func loseHost(t *testing.T, doing string) (time.Duration, string) {
	t.Helper()
	network := newHosts(t, 2, hostLink{})
	outs := make([]*bufio.Reader, 2)
	cmds := make([]*exec.Cmd, 2)
	var stderr bytes.Buffer // of rank 0
	for rank := range cmds {
		c := hostCommand(t, network, rank, 2, 1)
		c.Env = append(c.Env, lostVariable+"="+doing)
		out, err := c.StdoutPipe()
		if rank == 0 {
			c.Stderr = &stderr
		}
		if err := errors.Join(err, c.Start()); err != nil {
			t.Fatal(err)
		}
		cmds[rank], outs[rank] = c, bufio.NewReader(out)
	}
	defer func() {
		_ = cmds[1].Process.Kill()
		_ = cmds[1].Wait()
	}()
	for rank, out := range outs {
		if line, err := out.ReadString('\n'); line != fmt.Sprintf("%d tcp ring\n", rank) {
			t.Fatalf("rank %d wrote %q, %v", rank, line, err)
		}
	}
	if doing != lostWaiting {
		time.Sleep(200 * time.Millisecond) // some exchanges
	}
	if doing == lostSending { // in all likelihood, rank 0 then waits until it can send
		if err := cmds[1].Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	if err := network.Disconnect(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	ended := time.AfterFunc(collective.DefaultTimeout+30*time.Second, func() { _ = cmds[0].Process.Kill() })
	defer ended.Stop()
	if err := cmds[0].Wait(); err == nil {
		t.Error("rank 0 ended without an error")
	}
	return time.Since(begin), strings.TrimSpace(stderr.String())
}
