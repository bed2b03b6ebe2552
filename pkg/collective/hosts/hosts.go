// Package hosts simulates several hosts on one machine: network namespaces of Linux that are
// connected by a switch whose links have a limited bandwidth, a delay and losses. Tests run
// workers on them.
//
//	n, err := hosts.New(ctx, 2, hosts.Link{Rate: "100mbit"})
//	if err != nil {
//		return err
//	}
//	defer n.Close()
//	argv := n.Command(1, "lockstep", "train") // runs on the second host
//
// It needs root and the programs ip and tc (package iproute2 of Debian).
package hosts

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrNotPermitted is wrapped by the error of New if this user cannot create network namespaces
// on this machine.
var ErrNotPermitted = errors.New("network namespaces cannot be created")

// ErrNoNetem is wrapped by the error of New if the kernel cannot delay or lose packets.
var ErrNoNetem = errors.New("this kernel has no netem")

// Most hosts of one Network.
const maxHosts = 64

// Link describes the connection of each host to the switch. The zero value is a connection
// that is as fast as the machine.
type Link struct {
	// Rate limits the bandwidth in each direction, in the syntax of tc, such as "100mbit".
	// Empty means no limit.
	Rate string
	// Delay is added to each packet that a host sends.
	Delay time.Duration
	// LossPercent is the percentage of the packets that a host sends which do not arrive.
	LossPercent float64
}

// rates is the syntax of Link.Rate: bits per second with the units of tc.
var rates = regexp.MustCompile(`^[1-9][0-9]*[kmg]bit$`)

// Validate returns an error for the first invalid field.
func (l Link) Validate() error {
	switch {
	case l.Rate != "" && !rates.MatchString(l.Rate):
		return fmt.Errorf("invalid rate %q: use a whole number of kbit, mbit or gbit, for example 100mbit", l.Rate)
	case l.Delay < 0 || l.Delay > time.Minute:
		return fmt.Errorf("invalid delay %v: use 0 to %v", l.Delay, time.Minute)
	case !(l.LossPercent >= 0 && l.LossPercent < 100):
		return fmt.Errorf("invalid loss of %g %%: use at least 0 and less than 100", l.LossPercent)
	}
	return nil
}

// Network is a number of simulated hosts.
type Network struct {
	hosts      []string // names of their namespaces
	namespaces []string // all namespaces to remove: the hosts' and the switch's
}

// device is the name of a host's network device.
const device = "eth0"

// New creates n hosts that are connected by links like l. The caller must call Close, which
// removes them. New also removes hosts of processes that have ended without doing so.
func New(ctx context.Context, n int, l Link) (*Network, error) {
	if n < 1 || n > maxHosts {
		return nil, fmt.Errorf("create hosts: invalid number %d: use 1 to %d", n, maxHosts)
	}
	if err := l.Validate(); err != nil {
		return nil, fmt.Errorf("create hosts: %w", err)
	}
	removeAbandoned(ctx)
	w := &Network{}
	if err := w.create(ctx, n, l); err != nil {
		return nil, fmt.Errorf("create hosts: %w", errors.Join(err, w.Close()))
	}
	return w, nil
}

// create creates the namespaces and their connections. The switch is in a namespace of its own,
// where no firewall of this machine filters its packets.
func (w *Network) create(ctx context.Context, n int, l Link) error {
	prefix := fmt.Sprintf("%s%d-%s-", namePrefix, os.Getpid(), strings.ToLower(rand.Text()[:6]))
	center := prefix + "switch"
	if err := w.addNamespace(ctx, center); err != nil {
		return fmt.Errorf("%w: %w: run this as root on Linux, outside restricted containers, with iproute2 installed", ErrNotPermitted, err)
	}
	if err := run(ctx, "ip", "-n", center, "link", "add", "bridge", "up", "type", "bridge"); err != nil {
		return fmt.Errorf("%w: %w: this kernel has no bridges", ErrNotPermitted, err)
	}
	for i := range n {
		host := prefix + strconv.Itoa(i)
		if err := w.addNamespace(ctx, host); err != nil {
			return err
		}
		w.hosts = append(w.hosts, host)
		port := fmt.Sprint("port", i)
		for _, args := range [][]string{
			{"-n", center, "link", "add", port, "type", "veth", "peer", "name", device, "netns", host},
			{"-n", center, "link", "set", port, "master", "bridge", "up"},
			{"-n", host, "addr", "add", w.Address(i) + "/24", "dev", device},
			{"-n", host, "link", "set", device, "up"},
			{"-n", host, "link", "set", "lo", "up"},
		} {
			if err := run(ctx, "ip", args...); err != nil {
				return err
			}
		}
		if err := l.shape(ctx, host, center, port); err != nil {
			return err
		}
	}
	return nil
}

// addNamespace creates a namespace.
func (w *Network) addNamespace(ctx context.Context, name string) error {
	if err := run(ctx, "ip", "netns", "add", name); err != nil {
		return err
	}
	w.namespaces = append(w.namespaces, name)
	return nil
}

// shape limits the connection between a host and its port of the switch in both directions.
func (l Link) shape(ctx context.Context, host, center, port string) error {
	parent := []string{"root"}
	if l.Delay > 0 || l.LossPercent > 0 {
		args := []string{
			"-n", host, "qdisc", "add", "dev", device, "root", "handle", "1:", "netem", "limit", "100000",
			"delay", fmt.Sprintf("%dus", l.Delay.Microseconds()), "loss", fmt.Sprintf("%g%%", l.LossPercent),
		}
		if err := run(ctx, "tc", args...); err != nil {
			if strings.Contains(err.Error(), "qdisc kind is unknown") {
				err = fmt.Errorf("%w: %w: load the kernel module sch_netem, or use neither a delay nor losses", ErrNoNetem, err)
			}
			return err
		}
		parent = []string{"parent", "1:1"}
	}
	if l.Rate == "" {
		return nil
	}
	// The burst is two packets, so that short messages are limited too. The queue is long
	// enough for TCP's windows, so that no packet is lost unless LossPercent says so.
	tbf := []string{"handle", "10:", "tbf", "rate", l.Rate, "burst", "3100", "limit", "64mb"}
	if err := run(ctx, "tc", slices.Concat([]string{"-n", host, "qdisc", "add", "dev", device}, parent, tbf)...); err != nil {
		return err
	}
	return run(ctx, "tc", slices.Concat([]string{"-n", center, "qdisc", "add", "dev", port, "root"}, tbf)...)
}

// Address returns the IP address of a host. 192.0.2.0/24 is reserved for examples (RFC 5737).
func (*Network) Address(host int) string { return fmt.Sprint("192.0.2.", host+1) }

// Name returns the name of a host's network namespace.
func (w *Network) Name(host int) string { return w.hosts[host] }

// Command returns the command line that runs a program on a host.
func (w *Network) Command(host int, argv ...string) []string {
	return append([]string{"ip", "netns", "exec", w.hosts[host]}, argv...)
}

// Disconnect cuts the connection of a host. Nobody is notified, as if its cable was pulled.
func (w *Network) Disconnect(ctx context.Context, host int) error {
	return run(ctx, "ip", "-n", w.hosts[host], "link", "set", device, "down")
}

// Close removes the hosts. Processes that still run on them keep their namespaces, without a
// connection, until they end.
func (w *Network) Close() error {
	var errs []error
	for _, name := range slices.Backward(w.namespaces) {
		errs = append(errs, run(context.Background(), "ip", "netns", "del", name)) // also after the end of New's context
	}
	w.namespaces = nil
	return errors.Join(errs...)
}

// namePrefix begins the names of namespaces. The identifier of the process follows.
const namePrefix = "lockstep-"

// removeAbandoned removes namespaces of processes that no longer exist, which were killed
// before they could do so. It ignores errors, because another process may do the same.
func removeAbandoned(ctx context.Context) {
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		return // no namespace was ever created
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), namePrefix)
		number, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(number)
		if ours && err == nil && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = run(ctx, "ip", "netns", "del", e.Name())
		}
	}
}

// run runs a program, and returns an error with its output if it fails.
func run(ctx context.Context, program string, args ...string) error {
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
