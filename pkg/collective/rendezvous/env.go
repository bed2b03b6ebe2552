// Package rendezvous joins the workers of a run to a collective.Group. Each worker reads
// its rank from the environment. Rank 0 listens, the other ranks connect, and each proves
// that it knows the run's secret.
//
//	env, err := rendezvous.FromEnv(os.Getenv)
//	if err != nil {
//		return err
//	}
//	group, err := rendezvous.Join(ctx, env, rendezvous.Options{BuildID: buildid.ID})
//	if err != nil {
//		return err
//	}
//	defer group.Close()
//
// The variables are the same as torchrun's, with two more:
//
//	RANK, WORLD_SIZE              this worker's rank and the number of workers
//	LOCAL_RANK, LOCAL_WORLD_SIZE  the same for this machine (default: RANK and WORLD_SIZE)
//	MASTER_ADDR, MASTER_PORT      the address on which rank 0 listens
//	LOCKSTEP_TOKEN                the secret, the same on all ranks; it is never sent
//	LOCKSTEP_COLLECTIVE           the transport: shm, unix or tcp (default: on one machine
//	                              shared memory on Linux and unix sockets elsewhere; TCP
//	                              between several)
package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// The environment variables that FromEnv reads.
const (
	rankVariable       = "RANK"
	worldVariable      = "WORLD_SIZE"
	localRankVariable  = "LOCAL_RANK"
	localWorldVariable = "LOCAL_WORLD_SIZE"
	addrVariable       = "MASTER_ADDR"
	portVariable       = "MASTER_PORT"
	tokenVariable      = "LOCKSTEP_TOKEN"
	collectiveVariable = "LOCKSTEP_COLLECTIVE"
)

// Env contains a worker's rank, and the address and the secret of its run.
type Env struct {
	Rank, World           int
	LocalRank, LocalWorld int
	MasterAddr            string
	MasterPort            int
	Token                 string
	Collective            string // "shm", "unix", "tcp", or empty: rank 0 chooses
}

// FindFreePort returns a TCP port of this machine on which no process listens now, for the
// MasterPort of a run. Another process may take it before rank 0 does.
func FindFreePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// checkCollectiveName returns an error if v is not a value of LOCKSTEP_COLLECTIVE.
func checkCollectiveName(v string) error {
	switch v {
	case "", transportShared, transportUnix, transportTCP:
		return nil
	}
	return fmt.Errorf("invalid %s %q: use %s (shared memory), %s or %s (a ring of sockets), or leave it unset", collectiveVariable, v, transportShared, transportUnix, transportTCP)
}

// FromEnv reads an Env from the environment. getenv is os.Getenv except in tests. If
// neither RANK nor WORLD_SIZE is set, the world size is 1. It returns an error if only some
// of the variables that the worker needs are set.
func FromEnv(getenv func(string) string) (Env, error) {
	e := Env{World: 1, LocalWorld: 1, Token: getenv(tokenVariable), Collective: strings.TrimSpace(getenv(collectiveVariable))}
	if err := checkCollectiveName(e.Collective); err != nil {
		return Env{}, fmt.Errorf("read rank from environment: %w", err)
	}
	if getenv(rankVariable) == "" && getenv(worldVariable) == "" {
		for _, name := range []string{localRankVariable, localWorldVariable} {
			if v := getenv(name); v != "" {
				return Env{}, fmt.Errorf("read rank from environment: %s is %q, but %s and %s are not set: set them too, or unset %[1]s for a run of one worker", name, v, rankVariable, worldVariable)
			}
		}
		return e, nil
	}
	number := func(name string, fallback, low, high int) (int, error) {
		v := getenv(name)
		switch n, err := strconv.Atoi(strings.TrimSpace(v)); {
		case v == "" && fallback >= low:
			return fallback, nil
		case v == "":
			return 0, fmt.Errorf("%s is not set; every worker needs %s, %s, %s and %s", name, rankVariable, worldVariable, addrVariable, portVariable)
		case err != nil || n < low || n > high:
			return 0, fmt.Errorf("%s is %q: expected a whole number from %d to %d", name, v, low, high)
		default:
			return n, nil
		}
	}
	const none = -1
	var errs [5]error
	e.World, errs[0] = number(worldVariable, none, 1, 1<<20)
	if errs[0] == nil {
		e.Rank, errs[1] = number(rankVariable, none, 0, e.World-1)
		e.LocalWorld, errs[2] = number(localWorldVariable, e.World, 1, e.World)
	}
	if errors.Join(errs[:]...) == nil {
		e.LocalRank, errs[3] = number(localRankVariable, e.Rank%e.LocalWorld, 0, e.LocalWorld-1)
		if e.World > 1 {
			e.MasterPort, errs[4] = number(portVariable, none, 1, 65535)
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return Env{}, fmt.Errorf("read rank from environment: %w", err)
	}
	if e.World == 1 {
		return e, nil
	}
	if e.MasterAddr = strings.TrimSpace(getenv(addrVariable)); e.MasterAddr == "" {
		return Env{}, fmt.Errorf("read rank from environment: %s is not set; set it to the address on which rank 0 listens (127.0.0.1 for one machine)", addrVariable)
	}
	if e.Token == "" {
		return Env{}, fmt.Errorf("read rank from environment: %s is not set; give all ranks the same secret, so that nobody else can join (lockstep launch creates one)", tokenVariable)
	}
	return e, nil
}

// Address returns the address on which rank 0 listens, as host:port.
func (e Env) Address() string { return net.JoinHostPort(e.MasterAddr, strconv.Itoa(e.MasterPort)) }
