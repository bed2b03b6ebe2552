package rendezvous

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strconv"
	"strings"
)

// The values of Env.Source.
const (
	SourceExplicit = "RANK and WORLD_SIZE"
	SourceOpenMPI  = "Open MPI"
	SourcePMI      = "PMI"
	SourceHorovod  = "Horovod"
	SourceSlurm    = "Slurm step"
	SourceTFConfig = "TF_CONFIG"
)

// maxWorld is the largest world size that is read.
const maxWorld = 1 << 20

// rankSource is a launcher, or another program, that describes ranks by environment variables. Each
// of the fields from rank to job lists names of variables, and the first one that is set counts.
type rankSource struct {
	name                               string
	rank, world, localRank, localWorld []string
	job                                []string // identifies the job; all ranks have the same value
	// isSet reports whether the source describes this process. If it is nil, the source does so if
	// one of the variables in rank or world is set.
	isSet func(getenv func(string) string) bool
	// finish completes what read has read; it may be nil.
	finish func(e *Env, getenv func(string) string) error
}

// rankSources returns the sources in the order in which they are tried. Variables that a user sets
// for each rank come first, then launchers: mpirun may run within a step of Slurm, and a step
// of Slurm within anything that exports TF_CONFIG.
func rankSources() []rankSource {
	return []rankSource{
		{
			// torchrun sets the same variables as lockstep launch.
			name: SourceExplicit, rank: []string{rankVariable}, world: []string{worldVariable},
			localRank: []string{localRankVariable}, localWorld: []string{localWorldVariable}, job: []string{"TORCHELASTIC_RUN_ID"},
		},
		{
			// horovodrun sets these, unless it starts mpirun.
			name: SourceHorovod, rank: []string{"HOROVOD_RANK"}, world: []string{"HOROVOD_SIZE"},
			localRank: []string{"HOROVOD_LOCAL_RANK"}, localWorld: []string{"HOROVOD_LOCAL_SIZE"},
		},
		{
			name: SourceOpenMPI, rank: []string{"OMPI_COMM_WORLD_RANK"}, world: []string{"OMPI_COMM_WORLD_SIZE"},
			localRank: []string{"OMPI_COMM_WORLD_LOCAL_RANK"}, localWorld: []string{"OMPI_COMM_WORLD_LOCAL_SIZE"},
			job: []string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
		},
		{
			name: SourcePMI, rank: []string{"PMI_RANK"}, world: []string{"PMI_SIZE"},
			localRank: []string{"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}, localWorld: []string{"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"},
			isSet: func(getenv func(string) string) bool {
				// srun --mpi=pmi2 sets PMI_RANK too, but nothing about this machine: its own
				// variables say more.
				ofSlurm := inSlurmStep(getenv) && getenv("PMI_RANK") == getenv("SLURM_PROCID") && getenv("PMI_SIZE") == getenv("SLURM_STEP_NUM_TASKS")
				return (getenv("PMI_RANK") != "" || getenv("PMI_SIZE") != "") && !ofSlurm
			},
		},
		{
			name: SourceSlurm, rank: []string{"SLURM_PROCID"}, world: []string{"SLURM_STEP_NUM_TASKS"},
			isSet: inSlurmStep, finish: completeFromSlurm,
		},
		{name: SourceTFConfig, isSet: func(getenv func(string) string) bool { return getenv(tfConfigVariable) != "" }, finish: completeFromTFConfig},
	}
}

// readRankEnv reads the rank and the world size, and the address of rank 0 if the source knows
// it, from the first source that describes this process. Without one, the world size is 1.
func readRankEnv(getenv func(string) string) (Env, error) {
	for _, s := range rankSources() {
		set := func(names []string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return getenv(n) != "" })
		}
		if s.isSet != nil && s.isSet(getenv) || s.isSet == nil && (set(s.rank) || set(s.world)) {
			return s.read(getenv)
		}
	}
	for _, name := range []string{localRankVariable, localWorldVariable} {
		if v := getenv(name); v != "" {
			return Env{}, fmt.Errorf("%s is %q, but %s and %s are not set: set them too, or unset %[1]s for a run of one worker", name, v, rankVariable, worldVariable)
		}
	}
	return Env{World: 1, LocalWorld: 1}, nil
}

func (s rankSource) read(getenv func(string) string) (Env, error) {
	e := Env{World: 1, LocalWorld: 1, Source: s.name}
	if _, v := firstSetVariable(getenv, s.job); v != "" {
		e.job = s.name + " " + v
	}
	if s.rank != nil {
		if err := s.readRankNumbers(&e, getenv); err != nil {
			return Env{}, err
		}
	}
	if s.finish != nil {
		if err := s.finish(&e, getenv); err != nil {
			return Env{}, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return e, nil
}

// readRankNumbers reads the ranks and sizes of s into e. By default all ranks are on one machine.
func (s rankSource) readRankNumbers(e *Env, getenv func(string) string) error {
	var errs [4]error
	e.World, errs[0] = s.readNumber(getenv, s.world, -1, 1, maxWorld)
	if errs[0] == nil {
		e.Rank, errs[1] = s.readNumber(getenv, s.rank, -1, 0, e.World-1)
		e.LocalWorld, errs[2] = s.readNumber(getenv, s.localWorld, e.World, 1, e.World)
	}
	if errors.Join(errs[:]...) == nil {
		e.LocalRank, errs[3] = s.readNumber(getenv, s.localRank, e.Rank%e.LocalWorld, 0, e.LocalWorld-1)
	}
	return errors.Join(errs[:]...)
}

// firstSetVariable returns the name and the value of the first variable in names that is set. If
// none is set, it returns the first name and "".
func firstSetVariable(getenv func(string) string, names []string) (name, value string) {
	for _, n := range names {
		if v := getenv(n); v != "" {
			return n, v
		}
	}
	if len(names) == 0 {
		return "", ""
	}
	return names[0], ""
}

// readNumber reads a whole number from low to high from the first variable in names that is set. If
// none is set, it returns fallback, or an error if fallback is less than low.
func (s rankSource) readNumber(getenv func(string) string, names []string, fallback, low, high int) (int, error) {
	name, v := firstSetVariable(getenv, names)
	n, err := strconv.Atoi(strings.TrimSpace(v))
	switch {
	case v == "" && fallback >= low:
		return fallback, nil
	case v == "" && s.name == SourceExplicit:
		return 0, fmt.Errorf("%s is not set; every worker needs %s, %s, %s and %s", name, rankVariable, worldVariable, addrVariable, portVariable)
	case v == "":
		return 0, fmt.Errorf("%s is not set, but other variables of %s are: start all ranks with the same launcher, or set %s and %s", name, s.name, rankVariable, worldVariable)
	case err != nil || n < low || n > high:
		return 0, fmt.Errorf("%s is %q: expected a whole number from %d to %d", name, v, low, high)
	}
	return n, nil
}

// inSlurmStep reports whether srun has started this process. In a batch script, which Slurm
// runs once, SLURM_PROCID is set, but not SLURM_STEP_ID.
func inSlurmStep(getenv func(string) string) bool {
	return getenv("SLURM_STEP_ID") != "" && getenv("SLURM_PROCID") != ""
}

// completeFromSlurm sets the number of ranks on this node, and the address of rank 0: the first node
// of the step.
func completeFromSlurm(e *Env, getenv func(string) string) error {
	e.job = "Slurm " + getenv("SLURM_JOB_ID") + "." + getenv("SLURM_STEP_ID")
	if tasks := getenv("SLURM_STEP_TASKS_PER_NODE"); tasks != "" {
		counts, err := parseTasksPerNode(tasks)
		if err != nil {
			return err
		}
		sum := 0
		for _, n := range counts {
			sum += n
		}
		if sum != e.World {
			return fmt.Errorf("SLURM_STEP_TASKS_PER_NODE is %q, which is %d tasks, but SLURM_STEP_NUM_TASKS is %d: unset what was not set by srun", tasks, sum, e.World)
		}
		node, err := rankSource{name: SourceSlurm}.readNumber(getenv, []string{"SLURM_NODEID"}, 0, 0, len(counts)-1)
		if err != nil {
			return err
		}
		e.LocalWorld = counts[node]
	}
	var err error
	if e.LocalRank, err = (rankSource{name: SourceSlurm}).readNumber(getenv, []string{"SLURM_LOCALID"}, e.Rank%e.LocalWorld, 0, e.LocalWorld-1); err != nil {
		return err
	}
	if e.LocalWorld < e.World {
		e.MasterAddr = FirstHost(getenv("SLURM_STEP_NODELIST"))
		e.slurmNode, e.launchAddr = e.MasterAddr, getenv("SLURM_LAUNCH_NODE_IPADDR")
	}
	return nil
}

// parseTasksPerNode parses the value of SLURM_STEP_TASKS_PER_NODE, such as "2(x3),1": the
// number of tasks of each node, with repetitions.
func parseTasksPerNode(text string) ([]int, error) {
	var counts []int
	for part := range strings.SplitSeq(text, ",") {
		number, times, repeated := strings.Cut(part, "(x")
		n, err := strconv.Atoi(number)
		k := 1
		if repeated && err == nil {
			k, err = strconv.Atoi(strings.TrimSuffix(times, ")"))
		}
		if err != nil || n < 1 || k < 1 || len(counts)+k > maxWorld {
			return nil, fmt.Errorf("SLURM_STEP_TASKS_PER_NODE is %q: expected numbers of tasks such as 2(x3),1", text)
		}
		counts = append(counts, slices.Repeat([]int{n}, k)...)
	}
	return counts, nil
}

// FirstHost returns the first host of a list in Slurm's notation, such as node03 of
// "node[03-05,9],gpu1". It returns "" if the list is empty.
func FirstHost(list string) string {
	end := strings.IndexAny(list, ",[")
	if end < 0 {
		return list
	}
	host, rest := list[:end], list[end:]
	for strings.HasPrefix(rest, "[") {
		inside, after, _ := strings.Cut(rest[1:], "]")
		host += inside[:len(inside)-len(strings.TrimLeft(inside, "0123456789"))]
		end := strings.IndexAny(after+",", ",[")
		host, rest = host+after[:end], after[end:]
	}
	return host
}

// tensorFlowCluster is the JSON object in TF_CONFIG, by which TensorFlow describes a cluster
// (https://www.tensorflow.org/guide/distributed_training#TF_CONFIG).
type tensorFlowCluster struct {
	Cluster map[string][]string `json:"cluster"` // addresses by type of task
	Task    struct {
		Type  string      `json:"type"`
		Index json.Number `json:"index"` // a number, or a number in quotes
	} `json:"task"`
}

// FormatTFConfig returns the environment entry TF_CONFIG=… for the worker with the given index.
// addresses contains the address of each worker as host:port.
func FormatTFConfig(addresses []string, index int) string {
	c := tensorFlowCluster{Cluster: map[string][]string{"worker": addresses}}
	c.Task.Type, c.Task.Index = "worker", json.Number(strconv.Itoa(index))
	text, err := json.Marshal(c)
	if err != nil {
		return tfConfigVariable + "=" // texts and numbers always can be encoded
	}
	return tfConfigVariable + "=" + string(text)
}

// RankVariables returns the names of the environment variables that a launcher must remove if it
// sets TF_CONFIG. These describe a process's rank, and take precedence over TF_CONFIG, or contain
// the address of rank 0.
func RankVariables() []string {
	names := []string{addrVariable, portVariable}
	for _, s := range rankSources() {
		names = slices.Concat(names, s.rank, s.world, s.localRank, s.localWorld)
	}
	return names
}

// completeFromTFConfig reads TF_CONFIG. The chief is rank 0, before the workers; without a chief it
// is worker 0. Its address in the cluster becomes the address of rank 0.
func completeFromTFConfig(e *Env, getenv func(string) string) error {
	var c tensorFlowCluster
	if err := json.Unmarshal([]byte(getenv(tfConfigVariable)), &c); err != nil {
		return fmt.Errorf(`%w: expected a JSON object such as {"cluster":{"worker":["host1:29500","host2:29500"]},"task":{"type":"worker","index":0}}`, err)
	}
	chiefs := slices.Concat(c.Cluster["chief"], c.Cluster["master"])
	ranks := slices.Concat(chiefs, c.Cluster["worker"])
	index, err := strconv.Atoi(c.Task.Index.String())
	if c.Task.Index == "" {
		index, err = 0, nil
	}
	peers := c.Cluster[c.Task.Type]
	switch {
	case len(ranks) == 0 && c.Task.Type == "":
		return nil // no cluster: one worker
	case c.Task.Type != "worker" && c.Task.Type != "chief" && c.Task.Type != "master":
		return fmt.Errorf("task.type is %q: only tasks of type chief and worker train; start none of other types", c.Task.Type)
	case len(chiefs) > 1:
		return fmt.Errorf("the cluster has %d chiefs, want at most 1", len(chiefs))
	case err != nil || index < 0 || index >= len(peers):
		return fmt.Errorf("task.index is %q, but the cluster has %d tasks of type %s", c.Task.Index, len(peers), c.Task.Type)
	}
	e.World, e.Rank = len(ranks), index
	if c.Task.Type == "worker" {
		e.Rank += len(chiefs)
	}
	hosts := make([]string, len(ranks))
	var port string
	for i, address := range ranks {
		if hosts[i], port, err = net.SplitHostPort(address); err != nil {
			return fmt.Errorf("address %q of the cluster: %w: expected host:port", address, err)
		}
		if i == 0 {
			e.MasterAddr = hosts[0]
			if e.MasterPort, err = strconv.Atoi(port); err != nil || e.MasterPort < 1 || e.MasterPort > 65535 {
				return fmt.Errorf("address %q of the cluster: expected a port from 1 to 65535", address)
			}
		}
	}
	e.LocalWorld, e.LocalRank = 0, 0
	for i, h := range hosts {
		if h == hosts[e.Rank] {
			e.LocalWorld++
			if i < e.Rank {
				e.LocalRank++
			}
		}
	}
	return nil
}

// defaultPort is the port of a job without an identifier. torchrun has the same default.
const defaultPort = 29500

// deriveJobPort returns a port from 20000 to 32767, which Linux does not use for outgoing
// connections by default. The port is the same on all ranks of a job, and probably different for
// another job.
func deriveJobPort(job string) int {
	if job == "" {
		return defaultPort
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(job))
	return 20000 + int(h.Sum32()%12768)
}

// WithMaster returns a getenv whose environment also has the address of rank 0. address is HOST or
// HOST:PORT. HOST replaces MASTER_ADDR and PORT replaces MASTER_PORT. An empty address changes
// nothing.
func WithMaster(getenv func(string) string, address string) (func(string) string, error) {
	if address == "" {
		return getenv, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil && (!strings.Contains(address, ":") || net.ParseIP(strings.Trim(address, "[]")) != nil) {
		host, port, err = strings.Trim(address, "[]"), "", nil
	}
	if n, perr := strconv.Atoi(port); err != nil || host == "" || port != "" && (perr != nil || n < 1 || n > 65535) {
		return nil, fmt.Errorf("invalid address of rank 0 %q: expected HOST or HOST:PORT, such as node1 or node1:29500", address)
	}
	return func(name string) string {
		switch {
		case name == addrVariable:
			return host
		case name == portVariable && port != "":
			return port
		}
		return getenv(name)
	}, nil
}

// VariableTable returns a table of the environment variables from which a process takes its rank.
// It has one line per launcher, in the order in which they are tried, with the variables for the
// rank, the number of ranks, the local rank and the local number of ranks.
func VariableTable() string {
	var b strings.Builder
	for _, s := range rankSources() {
		var names []string
		for _, list := range [][]string{s.rank, s.world, s.localRank, s.localWorld} {
			if len(list) > 0 {
				names = append(names, list[0])
			}
		}
		launcher, variables := s.name, strings.Join(names, " ")
		switch s.name {
		case SourceExplicit:
			launcher = "lockstep, torchrun"
		case SourcePMI:
			launcher = "MPICH"
		case SourceSlurm:
			launcher, variables = "srun", variables+" SLURM_LOCALID SLURM_STEP_TASKS_PER_NODE"
		case SourceTFConfig:
			launcher, variables = "TensorFlow", tfConfigVariable
		}
		fmt.Fprintf(&b, "  %-18s  %s\n", launcher, variables)
	}
	return b.String()
}
