package preflight

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/device"
)

func joinFailureAdvice(env rendezvous.Env) string {
	ip := net.ParseIP(env.MasterAddr)
	switch {
	case env.LocalWorld < env.World && ip != nil && ip.IsLoopback():
		return "first solve the problems of missing nodes, if there are any; otherwise only its own node can reach the address of rank 0: write MASTER_ADDR=$(hostname -i), or the address that the site names, to exports in a copy of the profile"
	case ip == nil:
		return fmt.Sprintf("first solve the problems of missing nodes, if there are any; otherwise ask the site whether the name %s resolves on all nodes, and whether they may connect to each other on ports 20000 to 32767; to use another address, write MASTER_ADDR=… to exports in a copy of the profile", env.MasterAddr)
	}
	return fmt.Sprintf("first solve the problems of missing nodes, if there are any; otherwise ask the site whether all nodes can connect to %s on ports 20000 to 32767; to use another address, write MASTER_ADDR=… to exports in a copy of the profile", env.MasterAddr)
}

type networkInterface struct {
	name      string
	addresses []net.IP
}

func listInterfaces() ([]networkInterface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var up []networkInterface
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		n := networkInterface{name: i.Name}
		for _, a := range addresses {
			if ip, isNet := a.(*net.IPNet); isNet {
				n.addresses = append(n.addresses, ip.IP)
			}
		}
		up = append(up, n)
	}
	return up, nil
}

// matchesInterface reports whether pattern, a value of NCCL_SOCKET_IFNAME, selects the interface
// with the given name. A pattern is a list of prefixes of names. After = it is a list of complete
// names, and after ^ it selects all other interfaces.
func matchesInterface(pattern, name string) bool {
	list, exclude := strings.CutPrefix(pattern, "^")
	list, exact := strings.CutPrefix(list, "=")
	listed := slices.ContainsFunc(strings.Split(list, ","), func(p string) bool {
		return p == name || !exact && p != "" && strings.HasPrefix(name, p)
	})
	return listed != exclude
}

// interfaceFinding returns the finding about the interface that connects this node with rank 0, and
// whether the site profile names the same one.
func interfaceFinding(o NodeOptions, env rendezvous.Env) Finding {
	all, err := listInterfaces()
	if err != nil {
		return failedFinding(checkNetworkInterface, "list network interfaces: "+err.Error(), "tell the site's support the name of this node")
	}
	// Connecting a UDP socket sends nothing, but selects the interface.
	c, err := net.Dial("udp", env.Address())
	if err != nil {
		return failedFinding(checkNetworkInterface, fmt.Sprintf("find the interface that reaches rank 0 at %s: %v", env.Address(), err),
			"ask the site for the address or the name of a node that the other nodes can reach, and write MASTER_ADDR=… with it to exports in a copy of the profile")
	}
	local := c.LocalAddr().(*net.UDPAddr).IP
	_ = c.Close()
	i := slices.IndexFunc(all, func(n networkInterface) bool {
		return slices.ContainsFunc(n.addresses, local.Equal)
	})
	if i < 0 {
		return passedFinding(checkNetworkInterface, "address %s", local)
	}
	used := fmt.Sprintf("%s (%s)", all[i].name, local)
	return usedInterfaceFinding(o, used+interfaceSpeed("/sys/class/net", all[i].name), all[i].name, all)
}

// usedInterfaceFinding returns the finding about the interface that the ranks use. name is its name,
// used its description, and all contains the node's interfaces.
func usedInterfaceFinding(o NodeOptions, used, name string, all []networkInterface) Finding {
	if o.Interface == "" || matchesInterface(o.Interface, name) {
		return passedFinding(checkNetworkInterface, "%s", used)
	}
	var names, wanted []string
	for _, n := range all {
		names = append(names, n.name)
		if matchesInterface(o.Interface, n.name) {
			wanted = append(wanted, n.name)
		}
	}
	if len(wanted) == 0 {
		return failedFinding(checkNetworkInterface, fmt.Sprintf("the profile of site %s names the interface %s, which this node does not have; it has %s", o.Site, o.Interface, strings.Join(names, ", ")),
			"write the name of the fast network's interface to network_interface in a copy of the profile; the site's support knows it")
	}
	return warningFinding(checkNetworkInterface, fmt.Sprintf("the ranks connect through %s, but the profile of site %s names %s", used, o.Site, strings.Join(wanted, ", ")),
		fmt.Sprintf("write MASTER_ADDR=… with the first node's address on %s to exports in a copy of the profile; until then, gradients pass through %s", wanted[0], name))
}

func interfaceSpeed(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, filepath.Base(name), "speed"))
	if err != nil {
		return "" // loopback has none
	}
	megabits, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || megabits <= 0 {
		return ""
	}
	return fmt.Sprintf(", %g Gb/s", float64(megabits)/1000)
}

const (
	latencyRounds   = 20
	clockRounds     = 8
	firstBytes      = 1 << 20                // of the block by which the duration of others is estimated
	blockBytes      = 4 << 20                // of the others
	maxBlocks       = 16                     //
	blocksDuration  = 500 * time.Millisecond // approximately
	bytesPerElement = 4
)

// measureNetwork measures the bandwidth to the next rank, and the difference to the clock of rank
// 0. All ranks must call it.
func measureNetwork(ctx context.Context, g collective.Group) (*networkFacts, error) {
	n := &networkFacts{}
	if err := measureClockSkew(ctx, g, n); err != nil {
		return nil, fmt.Errorf("compare clocks: %w", err)
	}
	// First each even rank measures with the next rank, then each odd rank, so that each rank takes
	// part in one measurement at a time.
	for parity := range 2 {
		next, previous := g.Rank()+1, g.Rank()-1
		var err error
		switch {
		case g.Rank()%2 == parity && next < g.Size():
			err = n.measureLink(ctx, g, next)
		case g.Rank()%2 != parity && previous >= 0:
			err = answerMeasureLink(ctx, g, previous)
		}
		if err != nil {
			return nil, fmt.Errorf("measure bandwidth: %w", err)
		}
	}
	return n, g.Barrier(ctx)
}

func sendNumbers(ctx context.Context, g collective.Group, to int, numbers ...float64) error {
	return g.Send(ctx, device.Buffer{F64: numbers}, to)
}

// receiveNumbers receives one number from the rank from for each element of to, and stores it
// there.
func receiveNumbers(ctx context.Context, g collective.Group, from int, to ...*float64) error {
	b := make([]float64, len(to))
	err := g.Recv(ctx, device.Buffer{F64: b}, from)
	for i := range to {
		*to[i] = b[i]
	}
	return err
}

// unixSeconds returns the time in seconds since 1970. A float64 has a resolution of 0.24 µs here.
func unixSeconds() float64 { return float64(time.Now().UnixNano()) / 1e9 }

// measureClockSkew sets the skew of n, as NTP does (RFC 5905, section 8). Rank 0 asks each rank for its
// time, and assumes that the rank read its clock halfway between the question and the answer. The
// shortest of several rounds counts. The largest possible error is half the duration of that round.
func measureClockSkew(ctx context.Context, g collective.Group, n *networkFacts) error {
	if g.Rank() > 0 {
		var question float64
		for range clockRounds {
			if err := receiveNumbers(ctx, g, 0, &question); err != nil {
				return err
			}
			if err := sendNumbers(ctx, g, 0, unixSeconds()); err != nil {
				return err
			}
		}
		return receiveNumbers(ctx, g, 0, &n.SkewSeconds, &n.SkewError)
	}
	for rank := 1; rank < g.Size(); rank++ {
		skew, largest := 0.0, math.Inf(1)
		for range clockRounds {
			begin, asked := time.Now(), unixSeconds()
			if err := sendNumbers(ctx, g, rank, asked); err != nil {
				return err
			}
			var theirs float64
			if err := receiveNumbers(ctx, g, rank, &theirs); err != nil {
				return err
			}
			if half := time.Since(begin).Seconds() / 2; half < largest {
				skew, largest = theirs-(asked+half), half
			}
		}
		if err := sendNumbers(ctx, g, rank, skew, largest); err != nil {
			return err
		}
	}
	return nil
}

// measureLink measures the latency and the bandwidth to the next rank, which must call answerMeasureLink
// at the same time.
func (n *networkFacts) measureLink(ctx context.Context, g collective.Group, next int) error {
	shortest := math.Inf(1)
	var answer float64
	for range latencyRounds {
		begin := time.Now()
		if err := sendNumbers(ctx, g, next, 0); err != nil {
			return err
		}
		if err := receiveNumbers(ctx, g, next, &answer); err != nil {
			return err
		}
		shortest = min(shortest, time.Since(begin).Seconds())
	}
	n.LatencySeconds = shortest / 2
	seconds, err := timeBlockTransfers(ctx, g, next, firstBytes, 1)
	if err != nil {
		return err
	}
	blocks := min(max(1, int(blocksDuration.Seconds()/(seconds*blockBytes/firstBytes))), maxBlocks)
	if err := sendNumbers(ctx, g, next, float64(blocks)); err != nil {
		return err
	}
	if seconds, err = timeBlockTransfers(ctx, g, next, blockBytes, blocks); err != nil {
		return err
	}
	n.BytesPerSecond = float64(blocks*blockBytes) / max(seconds-n.LatencySeconds, 1e-9)
	return nil
}

// timeBlockTransfers sends a number of blocks to the rank next. It returns the seconds until next has
// answered that it has received them all.
func timeBlockTransfers(ctx context.Context, g collective.Group, next, bytes, blocks int) (seconds float64, err error) {
	b := device.Buffer{F32: make([]float32, bytes/bytesPerElement)}
	begin := time.Now()
	for range blocks {
		if err := g.Send(ctx, b, next); err != nil {
			return 0, err
		}
	}
	var answer float64
	err = receiveNumbers(ctx, g, next, &answer)
	return time.Since(begin).Seconds(), err
}

// answerMeasureLink answers the messages that the previous rank sends in measureLink.
func answerMeasureLink(ctx context.Context, g collective.Group, previous int) error {
	var question, blocks float64
	for range latencyRounds {
		if err := receiveNumbers(ctx, g, previous, &question); err != nil {
			return err
		}
		if err := sendNumbers(ctx, g, previous, 0); err != nil {
			return err
		}
	}
	if err := receiveBlocks(ctx, g, previous, firstBytes, 1); err != nil {
		return err
	}
	if err := receiveNumbers(ctx, g, previous, &blocks); err != nil {
		return err
	}
	return receiveBlocks(ctx, g, previous, blockBytes, int(blocks))
}

// receiveBlocks receives the blocks that the previous rank sends in timeBlockTransfers, and then answers.
func receiveBlocks(ctx context.Context, g collective.Group, previous, bytes, blocks int) error {
	b := device.Buffer{F32: make([]float32, bytes/bytesPerElement)}
	for range blocks {
		if err := g.Recv(ctx, b, previous); err != nil {
			return err
		}
	}
	return sendNumbers(ctx, g, previous, 0)
}
