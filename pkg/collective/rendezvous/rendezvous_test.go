package rendezvous

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// TestMain runs the test binary as a worker if a test has started it as one.
func TestMain(m *testing.M) {
	for variable, work := range map[string]func() error{namespaceVariable: beWorker, launchedVariable: beLaunched} {
		if os.Getenv(variable) == "" {
			continue
		}
		if err := work(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func Example() {
	env, err := FromEnv(func(string) string { return "" }) // os.Getenv in a program
	if err != nil {
		fmt.Println(err)
		return
	}
	group, err := Join(context.Background(), env, Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("rank", group.Rank(), "of", group.Size())
	// Output: rank 0 of 1
}

func TestFromEnv(t *testing.T) {
	full := map[string]string{"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "LOCKSTEP_TOKEN": "secret"}
	whole := Env{Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: 29500, Token: "secret", Source: SourceExplicit, TokenFrom: "LOCKSTEP_TOKEN"}
	overTCP, withoutToken := whole, whole
	overTCP.Collective, withoutToken.Token, withoutToken.TokenFrom = "tcp", "", ""
	for _, tt := range []struct {
		name   string
		change map[string]string // "-" takes the variable away
		want   Env
		err    string
	}{
		{"whole", nil, whole, ""},
		{"alone", map[string]string{"RANK": "-", "WORLD_SIZE": "-", "LOCAL_RANK": "-", "MASTER_ADDR": "-", "MASTER_PORT": "-", "LOCKSTEP_TOKEN": "-"}, Env{World: 1, LocalWorld: 1}, ""},
		{"world of one needs no address", map[string]string{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "-", "MASTER_ADDR": "-", "MASTER_PORT": "-", "LOCKSTEP_TOKEN": "-"}, Env{World: 1, LocalWorld: 1, Source: SourceExplicit}, ""},
		{"local rank from rank", map[string]string{"LOCAL_RANK": "-"}, whole, ""},
		{"rank in words", map[string]string{"RANK": "first"}, Env{}, `RANK is "first": expected a whole number from 0 to 1`},
		{"rank too large", map[string]string{"RANK": "2"}, Env{}, `RANK is "2": expected a whole number from 0 to 1`},
		{"rank absent", map[string]string{"RANK": "-"}, Env{}, "RANK is not set; every worker needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"},
		{"world absent", map[string]string{"WORLD_SIZE": "-"}, Env{}, "WORLD_SIZE is not set"},
		{"world of none", map[string]string{"WORLD_SIZE": "0"}, Env{}, `WORLD_SIZE is "0": expected a whole number from 1`},
		{"only a local rank", map[string]string{"RANK": "-", "WORLD_SIZE": "-"}, Env{}, `LOCAL_RANK is "1", but RANK and WORLD_SIZE are not set`},
		{"local rank too large", map[string]string{"LOCAL_RANK": "2"}, Env{}, `LOCAL_RANK is "2": expected a whole number from 0 to 1`},
		{"port", map[string]string{"MASTER_PORT": "70000"}, Env{}, `MASTER_PORT is "70000": expected a whole number from 1 to 65535`},
		{"no address", map[string]string{"MASTER_ADDR": "-"}, Env{}, "MASTER_ADDR is not set"},
		{"collective", map[string]string{"LOCKSTEP_COLLECTIVE": "tcp"}, overTCP, ""},
		{"algorithm unknown", map[string]string{"LOCKSTEP_ALGORITHM": "rings"}, Env{}, `LOCKSTEP_ALGORITHM: unknown algorithm "rings" of all-reduce (did you mean ring?)`},
		{"collective unknown", map[string]string{"LOCKSTEP_COLLECTIVE": "nccl"}, Env{}, `invalid LOCKSTEP_COLLECTIVE "nccl": use shm (shared memory), unix or tcp (a ring of sockets), mpi (under mpirun), or leave it unset`},
		{"no port", map[string]string{"MASTER_PORT": "-"}, whole, ""}, // torchrun's default is 29500 too
		{"no token on this machine", map[string]string{"LOCKSTEP_TOKEN": "-"}, withoutToken, ""},
		{"no token on a network", map[string]string{"LOCKSTEP_TOKEN": "-", "MASTER_ADDR": "192.0.2.1"}, Env{}, "only a loopback address is allowed, but rank 0 listens on 192.0.2.1: give all ranks the same LOCKSTEP_TOKEN, or run lockstep launch once"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := FromEnv(func(name string) string {
				switch v, ok := tt.change[name]; {
				case v == "-":
					return ""
				case ok:
					return v
				}
				return full[name]
			})
			if tt.err == "" {
				if err != nil || got != tt.want {
					t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
				}
				return
			}
			wantError(t, err, tt.err)
		})
	}
}

func wantError(t *testing.T, got error, parts ...string) {
	t.Helper()
	if got == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(got.Error(), p) {
			t.Errorf("error %q does not say %q", got, p)
		}
	}
}

// join calls Join concurrently for every Env, with the Options of the same index.
func join(ctx context.Context, envs []Env, options []Options) ([]collective.Group, []error) {
	groups, errs := make([]collective.Group, len(envs)), make([]error, len(envs))
	var wg sync.WaitGroup
	for i := range envs {
		wg.Go(func() { groups[i], errs[i] = Join(ctx, envs[i], options[i]) })
	}
	wg.Wait()
	return groups, errs
}

// run returns the Envs of one run of world workers, all with the same Options.
func run(t *testing.T, world int, o Options) ([]Env, []Options) {
	port, err := FindFreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var envs []Env
	var options []Options
	for r := range world {
		envs = append(envs, Env{Rank: r, World: world, LocalRank: r, LocalWorld: world, MasterAddr: "127.0.0.1", MasterPort: port, Token: "secret"})
		options = append(options, o)
	}
	return envs, options
}

func closeAll(t *testing.T, groups []collective.Group) {
	t.Helper()
	for _, g := range groups {
		if g != nil {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestRanksJoinAndAddUp(t *testing.T) {
	ctx := context.Background()
	envs, options := run(t, 3, Options{BuildID: "b"})
	groups, errs := join(ctx, envs, options)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, groups)
	// Other tests on this machine may have created files and not unlinked them yet.
	if shared := groups[0].(*collective.SharedMemory).Path(); shared == "" {
		t.Error("no path")
	} else if _, err := os.Stat(shared); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s still has its name (%v)", shared, err)
	}
	var wg sync.WaitGroup
	for r, g := range groups {
		wg.Go(func() {
			b := device.Buffer{F32: []float32{1, float32(r)}}
			if err := g.AllReduce(ctx, b); err != nil {
				t.Error(err)
			} else if b.F32[0] != 3 || b.F32[1] != 3 { // 1+1+1 and 0+1+2
				t.Errorf("rank %d: got %v, want [3 3]", r, b.F32)
			}
		})
	}
	wg.Wait()
}

func TestRankZeroMayComeLate(t *testing.T) {
	envs, options := run(t, 2, Options{})
	var first collective.Group
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		time.Sleep(100 * time.Millisecond)
		first, err = Join(context.Background(), envs[0], options[0])
	})
	second, serr := Join(context.Background(), envs[1], options[1])
	wg.Wait()
	if err := errors.Join(err, serr); err != nil {
		t.Fatal(err)
	}
	closeAll(t, []collective.Group{first, second})
}

// TestMisfitsAreRefused changes one property of one worker, and checks that all ranks get an
// error that describes it.
func TestMisfitsAreRefused(t *testing.T) {
	const short = 2 * time.Second
	for _, tt := range []struct {
		name   string
		change func(e []Env, o []Options)
		want   []string // by rank
	}{
		{
			"duplicate rank", func(e []Env, _ []Options) { e[2].Rank = 1 },
			[]string{"set a different RANK for each worker", "", ""},
		},
		{
			"world size", func(e []Env, _ []Options) { e[2].World = 4 },
			[]string{"has WORLD_SIZE 4, rank 0 has 3", "", "refused: rank 2"},
		},
		{
			"build", func(_ []Env, o []Options) { o[2].BuildID = "other" },
			[]string{`runs build "other", rank 0 runs build "b": start all workers from the same lockstep binary`, "", "refused: rank 2"},
		},
		{
			"token", func(e []Env, _ []Options) { e[2].Token = "guess" },
			[]string{"missing rank 2; a worker from 127.0.0.1", "", "refused: the worker's LOCKSTEP_TOKEN differs from this run's"},
		},
		{
			"chunk size", func(_ []Env, o []Options) { o[2].Group.ChunkBytes = 64 },
			[]string{"rank 2: open shared memory", "rank 2: open shared memory", "same world size and chunk size"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			envs, options := run(t, 3, Options{BuildID: "b", Timeout: short})
			tt.change(envs, options)
			groups, errs := join(context.Background(), envs, options)
			closeAll(t, groups)
			for r, want := range tt.want {
				wantError(t, errs[r], fmt.Sprintf("join run as rank %d of", envs[r].Rank), want)
			}
		})
	}
}

func TestTimeoutNamesMissingRanks(t *testing.T) {
	envs, options := run(t, 4, Options{Timeout: time.Second, Advice: "come earlier"})
	_, errs := join(context.Background(), []Env{envs[0], envs[2]}, options)
	wantError(t, errs[0], "not all of 4 ranks joined within 1s: missing ranks 1, 3; come earlier")
	wantError(t, errs[1], "missing ranks 1, 3; come earlier")
	_, errs = join(context.Background(), envs[1:2], options)
	wantError(t, errs[0], "rank 0 was not reached at 127.0.0.1", "connection refused", "within 1s", "MASTER_PORT; come earlier")
}

func TestCancelEndsTheWait(t *testing.T) {
	envs, options := run(t, 3, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, errs := join(ctx, envs[:2], options)
	for _, err := range errs {
		if !errors.Is(err, context.Canceled) {
			// Rank 1 may hear it from rank 0 first.
			wantError(t, err, "context canceled")
		}
	}
}

func TestTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { // a stranger that speaks another language
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "220 mail.example.org\r\n")
			_ = c.Close()
		}
	})
	defer wg.Wait()
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).Port
	e := Env{World: 2, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: port, Token: "secret"}
	_, err = Join(context.Background(), e, Options{})
	wantError(t, err, fmt.Sprintf("port %d on 127.0.0.1 is in use", port), "choose another MASTER_PORT")
	e.Rank = 1
	_, err = Join(context.Background(), e, Options{})
	wantError(t, err, "the program at the other end is not a lockstep worker", "choose another MASTER_PORT")
}

// TestStrangersNeitherJoinNorDisturb connects clients that send nothing, noise and a replayed
// proof while the workers join.
func TestStrangersNeitherJoinNorDisturb(t *testing.T) {
	envs, options := run(t, 2, Options{})
	var first collective.Group
	var ferr error
	var wg sync.WaitGroup
	wg.Go(func() { first, ferr = Join(context.Background(), envs[0], options[0]) })
	dial := func() net.Conn {
		for {
			c, err := net.Dial("tcp", envs[0].Address())
			if err == nil {
				return c
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	silent := dial()
	defer func() { _ = silent.Close() }()
	noisy := dial()
	_, _ = io.WriteString(noisy, strings.Repeat("x", 2*maxMessageBytes))
	_ = noisy.Close()
	// A proof for one nonce is invalid for another.
	replay := dial()
	defer func() { _ = replay.Close() }()
	_, _ = fmt.Fprintf(replay, `{"nonce":"00","claim":{"rank":1,"world":2},"proof":%q}`+"\n",
		computeProof("secret", workerSide, "an earlier nonce", "00", []byte(`{"rank":1,"world":2}`)))
	r := bufio.NewReader(replay)
	if line, err := r.ReadString('\n'); err != nil || strings.Contains(line, "secret") {
		t.Errorf("greeting %q, %v", line, err)
	}
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "LOCKSTEP_TOKEN differs from this run's") {
		t.Errorf("answer to a replay: %q, %v", line, err)
	}
	second, serr := Join(context.Background(), envs[1], options[1])
	wg.Wait()
	if err := errors.Join(ferr, serr); err != nil {
		t.Fatal(err)
	}
	closeAll(t, []collective.Group{first, second})
}

// TestWorkerDemandsProofToo checks that a worker refuses a server that does not know the token.
func TestWorkerDemandsProofToo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		w := newJSONConn(c)
		_, answer, _ := serverHandshake(w, "another secret") // sends the refusal …
		_ = w.send(answer)
	})
	defer wg.Wait()
	defer func() { _ = l.Close() }()
	e := Env{Rank: 1, World: 2, MasterAddr: "127.0.0.1", MasterPort: l.Addr().(*net.TCPAddr).Port, Token: "secret"}
	_, err = Join(context.Background(), e, Options{})
	wantError(t, err, "refused")

	client, server := net.Pipe()
	wg.Go(func() { // … and one that lets everyone in without knowing the token
		w := newJSONConn(server)
		_ = w.send(serverGreeting{Lockstep: protocolVersion, Nonce: "11"})
		var h workerHello
		_ = w.receive(&h)
		_ = w.send(handshakeReply{Proof: computeProof("another secret", serverSide, h.Nonce, "11", h.Claim)})
	})
	err = clientHandshake(newJSONConn(client), "secret", workerClaim{Rank: 1, World: 2})
	wantError(t, err, "rank 0 does not know this run's LOCKSTEP_TOKEN")
	_ = client.Close()
	_ = server.Close()
}
