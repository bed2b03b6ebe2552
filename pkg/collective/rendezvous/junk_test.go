package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// failing is a listener whose first calls of Accept fail.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: err}
	}
	return f.Listener.Accept()
}

// TestAcceptErrors checks that errors of Accept, such as too many open files, do not end the
// rendezvous.
func TestAcceptErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &failing{l, []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOBUFS, syscall.EMFILE}}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	e := Env{World: 2, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: l.Addr().(*net.TCPAddr).Port, Token: "secret"}
	ranks := make([]*authenticatedWorker, 2)
	var wg sync.WaitGroup
	var gerr error
	wg.Go(func() { gerr = acceptWorkers(ctx, f, e, Options{Timeout: time.Minute}, workerClaim{World: 2}, ranks) })
	second := e
	second.Rank = 1
	w, err := connectToServer(ctx, second, Options{Timeout: time.Minute}, workerClaim{Rank: 1, World: 2})
	wg.Wait()
	if err := errors.Join(err, gerr); err != nil {
		t.Fatal(err)
	}
	if len(f.errs) > 0 {
		t.Errorf("Accept did not return the errors %v", f.errs)
	}
	if err := errors.Join(w.Close(), ranks[1].Close()); err != nil {
		t.Error(err)
	}
}

// TestHalfOpenConnectionsAreBounded checks that only the newest silent connections of an address
// stay open, and that a worker can still join.
func TestHalfOpenConnectionsAreBounded(t *testing.T) {
	const junk = 200
	envs, options := run(t, 2, Options{})
	var first collective.Group
	var ferr error
	var wg sync.WaitGroup
	wg.Go(func() { first, ferr = Join(context.Background(), envs[0], options[0]) })
	var conns []net.Conn
	for len(conns) < junk {
		c, err := net.Dial("tcp", envs[0].Address())
		if err != nil { // it does not listen yet
			time.Sleep(5 * time.Millisecond)
			continue
		}
		defer func() { _ = c.Close() }()
		conns = append(conns, c)
	}
	// Connections over the limit are closed at once, not after handshakeTimeout. Rank 1 has
	// not joined yet, so nothing else closes them.
	for i, c := range conns[:junk-minConnectionsPerAddress] {
		if err := c.SetReadDeadline(time.Now().Add(handshakeTimeout / 2)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("connection %d of %d is held: %v", i, junk, err)
		}
	}
	second, serr := Join(context.Background(), envs[1], options[1])
	wg.Wait()
	if err := errors.Join(ferr, serr); err != nil {
		t.Fatal(err)
	}
	closeAll(t, []collective.Group{first, second})
}

// BenchmarkJunk measures an epoch of 100 all-reduces of 4 MB over TCP between two
// ranks, alone and while 200 clients that are not workers connect to the port of the
// rendezvous again and again, before and during the epochs.
func BenchmarkJunk(b *testing.B) {
	for _, strangers := range []int{0, 200} {
		b.Run(fmt.Sprint(strangers), func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			port := l.Addr().(*net.TCPAddr).Port
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			var envs []Env
			for r := range 2 {
				envs = append(envs, Env{Rank: r, World: 2, LocalRank: r, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: port, Token: "secret", Collective: transportTCP})
			}
			for range strangers {
				wg.Go(func() { connectAgain(ctx, envs[0].Address()) })
			}
			groups, errs := join(ctx, envs, make([]Options, 2))
			if err := errors.Join(errs...); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				var ranks sync.WaitGroup
				for _, g := range groups {
					ranks.Go(func() {
						buffer := device.Buffer{F32: make([]float32, 1<<20)}
						for range 100 {
							if err := g.AllReduce(ctx, buffer); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				ranks.Wait()
			}
			for _, g := range groups {
				if err := g.Close(); err != nil {
					b.Error(err)
				}
			}
		})
	}
}

// connectAgain connects to address every 50 ms, sends bytes that no worker sends, and waits for
// the end of the connection.
func connectAgain(ctx context.Context, address string) {
	for ctx.Err() == nil {
		if c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address); err == nil {
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			_, _ = io.Copy(io.Discard, c)
			stop()
			_ = c.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
