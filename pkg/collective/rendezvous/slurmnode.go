package rendezvous

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"time"
)

// lookupTimeout limits how long a name server, or Slurm's controller, may take to answer.
const lookupTimeout = 10 * time.Second

// ResolveMaster returns e with an address of rank 0 to which this machine can connect. It changes e
// only if the address is the name of a Slurm node that does not resolve. It then uses the node's
// address in Slurm's configuration (NodeAddr), or else the address of the node on which srun was
// started, which is the job's first node if the job script has called srun.
func (e Env) ResolveMaster(ctx context.Context) Env {
	if e.slurmNode == "" || e.MasterAddr != e.slurmNode {
		return e
	}
	e.MasterAddr = e.resolveNode(ctx, e.slurmNode)
	return e
}

// resolveNode returns an address of the node, as ResolveMaster describes, or node itself.
func (e Env) resolveNode(ctx context.Context, node string) string {
	if isResolvable(ctx, node) {
		return node
	}
	for _, address := range []string{slurmNodeAddress(ctx, node), e.launchAddr} {
		if address != "" && isResolvable(ctx, address) {
			return address
		}
	}
	return node
}

// isResolvable reports whether host is an IP address or has one.
func isResolvable(ctx context.Context, host string) bool {
	if net.ParseIP(host) != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	all, err := net.DefaultResolver.LookupHost(ctx, host)
	return err == nil && len(all) > 0
}

// slurmNodeAddress returns a node's address in Slurm's configuration, or "".
func slurmNodeAddress(ctx context.Context, node string) string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "scontrol", "--oneliner", "show", "node", node)
	cmd.WaitDelay = time.Second
	text, err := cmd.Output()
	if err != nil {
		return ""
	}
	for field := range strings.FieldsSeq(string(text)) {
		if address, ok := strings.CutPrefix(field, "NodeAddr="); ok {
			return address
		}
	}
	return ""
}
