// Package rendezvous is how the workers of a run find each other: each reads
// its place from the environment, rank 0 listens, the others come, each proves
// that it knows the run's secret, and all leave with a collective.Group.
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
// The variables are those that torchrun made common, plus the secret:
//
//	RANK, WORLD_SIZE              this worker and how many there are
//	LOCAL_RANK, LOCAL_WORLD_SIZE  the same on this machine (RANK and WORLD_SIZE where absent)
//	MASTER_ADDR, MASTER_PORT      where rank 0 listens
//	LOCKSTEP_TOKEN                the secret, equal on all ranks; it never goes over the network
//	LOCKSTEP_COLLECTIVE           what carries the numbers: shm, unix or tcp; without it
//	                              shared memory on one machine, TCP between several
package rendezvous

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// The variables that FromEnv reads.
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

// Env is a worker's place in its run.
type Env struct {
	Rank, World           int
	LocalRank, LocalWorld int
	MasterAddr            string
	MasterPort            int
	Token                 string
	Collective            string // "shm", "unix", "tcp", or empty: rank 0 chooses
}

func validCollective(v string) error {
	switch v {
	case "", transportShared, transportUnix, transportTCP:
		return nil
	}
	return fmt.Errorf("%s is %q: use %s (shared memory), %s or %s (a ring of sockets), or leave it unset", collectiveVariable, v, transportShared, transportUnix, transportTCP)
}

// FromEnv reads a worker's place; getenv is os.Getenv or a test's. With none
// of the variables set the worker is alone: a world of one. Where some are,
// those that are needed and absent are an error.
func FromEnv(getenv func(string) string) (Env, error) {
	e := Env{World: 1, LocalWorld: 1, Token: getenv(tokenVariable), Collective: strings.TrimSpace(getenv(collectiveVariable))}
	if err := validCollective(e.Collective); err != nil {
		return Env{}, fmt.Errorf("read rank from environment: %w", err)
	}
	if getenv(rankVariable) == "" && getenv(worldVariable) == "" {
		for _, name := range []string{localRankVariable, localWorldVariable} {
			if v := getenv(name); v != "" {
				return Env{}, fmt.Errorf("read rank from environment: %s is %q, but %s and %s are not set; set both, or none for a run of one worker", name, v, rankVariable, worldVariable)
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
		return Env{}, fmt.Errorf("read rank from environment: %s is not set; it says where rank 0 listens (127.0.0.1 for one machine)", addrVariable)
	}
	if e.Token == "" {
		return Env{}, fmt.Errorf("read rank from environment: %s is not set; give all ranks the same secret, so that no stranger can join (lockstep launch makes one)", tokenVariable)
	}
	return e, nil
}

// Address is where rank 0 listens.
func (e Env) Address() string { return net.JoinHostPort(e.MasterAddr, strconv.Itoa(e.MasterPort)) }
