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
// The variables are the same as torchrun's, with three more. FromEnv lists the variables of
// other launchers, which need none of these:
//
//	RANK, WORLD_SIZE              this worker's rank and the number of workers
//	LOCAL_RANK, LOCAL_WORLD_SIZE  the same for this machine (default: RANK and WORLD_SIZE)
//	MASTER_ADDR, MASTER_PORT      the address on which rank 0 listens (default of the port:
//	                              29500, or a number derived from the job's identifier)
//	LOCKSTEP_TOKEN                the secret, the same on all ranks; it is never sent
//	                              (default: see TokenPath)
//	LOCKSTEP_TLS                  1: encrypt the connections between the ranks (default: 0)
//	LOCKSTEP_COLLECTIVE           the transport: shm, unix, tcp, or under mpirun mpi (default:
//	                              on one machine shared memory on Linux and unix sockets
//	                              elsewhere; TCP between several)
//	LOCKSTEP_ALGORITHM            the algorithm of all-reduce: direct, ring, halving, tree,
//	                              hierarchical, or auto (default: direct for shm, else ring)
package rendezvous

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"

	"lockstep/pkg/collective"
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
	algorithmVariable  = "LOCKSTEP_ALGORITHM"
	tfConfigVariable   = "TF_CONFIG"
)

// Env contains a worker's rank, and the address and the secret of its run.
type Env struct {
	Rank, World           int
	LocalRank, LocalWorld int
	MasterAddr            string
	MasterPort            int
	Token                 string // empty only if MasterAddr is a loopback address
	Collective            string // "shm", "unix", "tcp", "mpi", or empty: rank 0 chooses
	Algorithm             string // of all-reduce, see collective.Options; empty: that of the transport
	Source                string // where the rank is from, such as SourceSlurm; empty: nowhere, and World is 1
	TokenFrom             string // LOCKSTEP_TOKEN, or the path of the token file; empty without a token

	TLS bool // encrypt the connections between the ranks

	certificate *tls.Certificate // of this process, once it has joined with TLS

	job string // identifies the job of the launcher; empty if unknown

	// slurmNode is the first node of a Slurm step or job, and launchAddr is the address of the node
	// on which srun was started. Both are for ResolveMaster, and empty outside Slurm or if all
	// ranks are on one node.
	slurmNode, launchAddr string
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

// checkCollectiveName checks a value of LOCKSTEP_COLLECTIVE.
func checkCollectiveName(v string) error {
	switch v {
	case "", transportShared, transportUnix, transportTCP, transportMPI:
		return nil
	}
	return fmt.Errorf("invalid %s %q: use %s (shared memory), %s or %s (a ring of sockets), %s (under mpirun), or leave it unset", collectiveVariable, v, transportShared, transportUnix, transportTCP, transportMPI)
}

// CheckVariables returns an error for the first invalid variable that chooses how workers
// exchange data. getenv is os.Getenv except in tests.
func CheckVariables(getenv func(string) string) error {
	return new(Env).readTransport(getenv)
}

func (e *Env) readTransport(getenv func(string) string) (err error) {
	e.Collective = strings.TrimSpace(getenv(collectiveVariable))
	if err := checkCollectiveName(e.Collective); err != nil {
		return err
	}
	e.Algorithm = strings.TrimSpace(getenv(algorithmVariable))
	if err := collective.CheckAlgorithm(e.Algorithm); err != nil {
		return fmt.Errorf("%s: %w", algorithmVariable, err)
	}
	e.TLS, err = readTLS(getenv)
	return err
}

// FromEnv reads an Env from the environment. getenv is os.Getenv except in tests. The rank and the
// world size come from the first of these sources that describes this process:
//
//	RANK and WORLD_SIZE        set by the user, lockstep launch or torchrun
//	HOROVOD_RANK, …            set by horovodrun
//	OMPI_COMM_WORLD_RANK, …    set by mpirun of Open MPI
//	PMI_RANK, PMI_SIZE         set by mpirun of MPICH and others
//	SLURM_PROCID, …            set by srun
//	TF_CONFIG                  of TensorFlow: the chief and the workers are the ranks
//
// Without any of them, the world size is 1. FromEnv returns an error if the variables of the source
// contradict each other, or if the address of rank 0 or the secret is needed and unknown. It does
// not look at the sources after the first one.
func FromEnv(getenv func(string) string) (Env, error) {
	e, err := readRankEnv(getenv)
	if err == nil {
		err = e.readTransport(getenv)
	}
	if err == nil && e.ConnectsToMaster() {
		err = e.readMasterAddress(getenv)
	}
	if err == nil && e.ConnectsToMaster() {
		err = e.loadToken(getenv)
	}
	if err != nil {
		return Env{}, fmt.Errorf("read rank from environment: %w", err)
	}
	return e, nil
}

// readMasterAddress applies MASTER_ADDR and MASTER_PORT. An unknown address is an error.
func (e *Env) readMasterAddress(getenv func(string) string) error {
	if v := strings.TrimSpace(getenv(addrVariable)); v != "" {
		e.MasterAddr = v
	}
	e.setSlurmMaster(getenv)
	if e.MasterAddr == "" && e.LocalWorld == e.World && e.Source != SourceExplicit {
		e.MasterAddr = "127.0.0.1"
	}
	switch {
	case e.MasterAddr == "" && e.Source == SourceExplicit:
		return fmt.Errorf("%s is not set; set it to the address on which rank 0 listens (127.0.0.1 for one machine), or use --master HOST[:PORT]", addrVariable)
	case e.MasterAddr == "":
		return fmt.Errorf("%s does not state the host of rank 0, and the %d ranks are on several machines: add --master HOST[:PORT], or set %s", e.Source, e.World, addrVariable)
	}
	fallback := e.MasterPort
	if fallback == 0 {
		fallback = deriveJobPort(e.job)
	}
	var err error
	e.MasterPort, err = rankSource{name: e.Source}.readNumber(getenv, []string{portVariable}, fallback, 1, 65535)
	return err
}

// setSlurmMaster sets the address of rank 0 if it is unknown and mpirun runs in a Slurm job on
// several nodes. Without options, mpirun starts rank 0 on the first node of the job.
func (e *Env) setSlurmMaster(getenv func(string) string) {
	node := FirstHost(getenv("SLURM_JOB_NODELIST"))
	if e.slurmNode != "" || node == "" || e.Source != SourceOpenMPI && e.Source != SourcePMI {
		return
	}
	if e.MasterAddr == "" && e.LocalWorld < e.World {
		e.MasterAddr = node
	}
	if e.MasterAddr == node {
		e.slurmNode = node
	}
}

// ConnectsToMaster reports whether the ranks connect to rank 0, which takes its address and a
// secret. A single rank does not, and with MPI mpirun connects the ranks.
func (e Env) ConnectsToMaster() bool { return e.World > 1 && e.Collective != transportMPI }

// Address returns the address on which rank 0 listens, as host:port.
func (e Env) Address() string { return net.JoinHostPort(e.MasterAddr, strconv.Itoa(e.MasterPort)) }
