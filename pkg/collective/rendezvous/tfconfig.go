package rendezvous

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// TFConfig returns the environment entry TF_CONFIG=… for the process of rank e.Rank, which srun has
// started, or which is the only one. Worker i of the cluster is rank i. Its port is the port of the run plus
// 1+i, because all nodes of a cluster may have the same address. getenv reads srun's variables.
func (e Env) TFConfig(ctx context.Context, getenv func(string) string) (string, error) {
	hosts, err := e.rankHosts(ctx, getenv)
	if err != nil {
		return "", fmt.Errorf("make TF_CONFIG: %w", err)
	}
	addresses := make([]string, len(hosts))
	for rank, host := range hosts {
		addresses[rank] = net.JoinHostPort(host, strconv.Itoa(e.MasterPort+1+rank))
	}
	return FormatTFConfig(addresses, e.Rank), nil
}

func (e Env) rankHosts(ctx context.Context, getenv func(string) string) ([]string, error) {
	var hosts []string
	if e.LocalWorld == e.World {
		for range e.World {
			hosts = append(hosts, e.MasterAddr)
		}
		return hosts, nil
	}
	if !inSlurmStep(getenv) {
		return nil, fmt.Errorf("the %d ranks are on several machines, which only Slurm's variables name: start them by srun", e.World)
	}
	counts, err := parseTasksPerNode(getenv("SLURM_STEP_TASKS_PER_NODE"))
	if err != nil {
		return nil, err
	}
	nodes, err := expandNodeNames(ctx, getenv("SLURM_STEP_NODELIST"))
	if err == nil && len(nodes) != len(counts) {
		err = fmt.Errorf("SLURM_STEP_NODELIST has %d nodes, SLURM_STEP_TASKS_PER_NODE %d", len(nodes), len(counts))
	}
	if err != nil {
		return nil, err
	}
	for i, node := range nodes {
		if getenv("SLURM_NODEID") == strconv.Itoa(i) && (e.Rank < len(hosts) || e.Rank >= len(hosts)+counts[i]) {
			return nil, fmt.Errorf("rank %d is on node %d, but with the ranks in blocks it would not be: start srun with --distribution=block", e.Rank, i)
		}
		address := e.resolveNode(ctx, node)
		for range counts[i] {
			hosts = append(hosts, address)
		}
	}
	return hosts, nil
}

// expandNodeNames expands a list such as n[1-3,7] without asking Slurm's controller.
func expandNodeNames(ctx context.Context, list string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "scontrol", "show", "hostnames", list)
	cmd.WaitDelay = time.Second
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("expand list of nodes %s: %w", list, err)
	}
	return strings.Fields(string(text)), nil
}
