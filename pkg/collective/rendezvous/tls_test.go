package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/pkg/collective"
)

// TestTLS joins ranks that encrypt their connections. They add up, and a rank that leaves is
// named as without TLS.
func TestTLS(t *testing.T) {
	for transport, want := range map[string]string{transportTCP: "tcp ring, TLS", transportUnix: "unix ring, TLS", transportShared: "shared memory"} {
		t.Run(transport, func(t *testing.T) {
			envs, options := run(t, 3, Options{Group: collective.Options{Timeout: time.Minute}})
			for r := range envs {
				envs[r].Collective, envs[r].TLS = transport, true
			}
			groups, errs := join(context.Background(), envs, options)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				if err := addUp(groups); err != nil {
					t.Fatal(err)
				}
			}
			if groups[0].Name() != want {
				t.Errorf("the transport is %q, want %q", groups[0].Name(), want)
			}
			if transport != transportShared {
				if err := groups[2].Close(); err != nil {
					t.Error(err)
				}
				var wg sync.WaitGroup
				for _, g := range groups[:2] {
					wg.Go(func() {
						if err := g.Barrier(context.Background()); err == nil || !strings.Contains(err.Error(), "rank 2 has left the group (last seen in all-reduce 20)") {
							t.Errorf("rank %d: got %v, want that rank 2 has left", g.Rank(), err)
						}
					})
				}
				wg.Wait()
			}
			closeAll(t, groups)
		})
	}
}

// TestTLSOnSomeRanks checks the errors of ranks that do not agree.
func TestTLSOnSomeRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, onServer := range []bool{false, true} {
		envs, options := run(t, 2, Options{Timeout: 3 * time.Second})
		envs[0].TLS, envs[1].TLS = onServer, !onServer
		groups, errs := join(context.Background(), envs, options)
		closeAll(t, groups)
		wantError(t, errs[1], fmt.Sprintf("it has LOCKSTEP_TLS %t, this worker %t: set the same value on all workers", onServer, !onServer))
		wantError(t, errs[0], "missing rank 1", fmt.Sprintf("was refused: the worker has LOCKSTEP_TLS %t, rank 0 has %t: set the same value on all workers", !onServer, onServer))
	}
	_, err := FromEnv(getenvOf("LOCKSTEP_TLS=yes"))
	wantError(t, err, `invalid LOCKSTEP_TLS "yes": use 1 to encrypt the connections between the workers, or 0`)
	if e, err := FromEnv(getenvOf("LOCKSTEP_TLS=1")); err != nil || !e.TLS {
		t.Errorf("TLS is %v, %v", e.TLS, err)
	}
	_, err = Join(context.Background(), Env{World: 2, MasterAddr: "127.0.0.1", MasterPort: 1, TLS: true}, Options{})
	wantError(t, err, "LOCKSTEP_TLS needs a secret")
}

// handshakeThrough runs the handshake of a worker and a server that are connected to the two
// ends of middle, and returns the error of each.
func handshakeThrough(t *testing.T, useTLS bool, middle func(worker, server net.Conn)) (werr, serr error) {
	t.Helper()
	from, to := net.Pipe()
	relayed, accepted := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() { middle(to, relayed) })
	wg.Go(func() {
		s := newJSONConn(accepted)
		if useTLS {
			var err error
			if s.certificate, err = newCertificate(); err != nil {
				t.Error(err)
			}
		}
		var r handshakeReply
		if _, r, serr = serverHandshake(s, "secret"); serr == nil {
			serr = s.send(r)
		}
		_ = s.Close()
	})
	werr = clientHandshake(newJSONConn(from), "secret", workerClaim{Rank: 1, World: 2, Host: "name-of-the-host", TLS: useTLS})
	_ = from.Close()
	wg.Wait()
	return werr, serr
}

// TestTLSHidesTheHandshake records what passes between two processes: with TLS, the claim
// cannot be read.
func TestTLSHidesTheHandshake(t *testing.T) {
	for _, useTLS := range []bool{false, true} {
		var seen bytes.Buffer // from the worker
		werr, serr := handshakeThrough(t, useTLS, func(worker, server net.Conn) {
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = io.Copy(io.MultiWriter(server, &seen), worker); _ = server.Close() })
			wg.Go(func() { _, _ = io.Copy(worker, server); _ = worker.Close() })
			wg.Wait()
		})
		if err := errors.Join(werr, serr); err != nil {
			t.Errorf("TLS %v: %v", useTLS, err)
		}
		if readable := bytes.Contains(seen.Bytes(), []byte("name-of-the-host")); readable == useTLS {
			t.Errorf("TLS %v: the host name is readable: %v", useTLS, readable)
		}
	}
}

// TestTLSInTheMiddle puts a program between two processes that has an encrypted connection to
// each and passes on what they send. Their proofs must not be valid.
func TestTLSInTheMiddle(t *testing.T) {
	werr, serr := handshakeThrough(t, true, func(worker, server net.Conn) {
		defer func() { _, _ = worker.Close(), server.Close() }()
		in, out := newJSONConn(worker), newJSONConn(server)
		certificate, err := newCertificate()
		if err != nil {
			t.Error(err)
			return
		}
		var g serverGreeting
		if err := errors.Join(out.receive(&g), in.send(g), out.startTLS(nil), in.startTLS(certificate)); err != nil {
			t.Error(err)
			return
		}
		var h workerHello
		var r handshakeReply
		if err := errors.Join(in.receive(&h), out.send(h), out.receive(&r), in.send(r)); err != nil {
			t.Error(err)
		}
	})
	const want = "the worker's LOCKSTEP_TOKEN differs from this run's"
	wantError(t, serr, want)
	wantError(t, werr, want)
}
