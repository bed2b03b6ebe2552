package rendezvous

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// This file simulates several hosts on one machine: network namespaces of Linux that are connected
// by a switch whose links have a limited bandwidth, a delay and losses. It needs root and the
// programs ip and tc (package iproute2 of Debian).

// errNotPermitted is wrapped by the error of createHosts if this user cannot create network namespaces
// on this machine.
var errNotPermitted = errors.New("network namespaces cannot be created")

// errNoNetem is wrapped by the error of createHosts if the kernel cannot delay or lose packets.
var errNoNetem = errors.New("this kernel has no netem")

// hostLink describes the connection of each host to the switch. The zero value is a connection
// that is as fast as the machine.
type hostLink struct {
	// Rate limits the bandwidth in each direction, in the syntax of tc, such as "100mbit".
	// Empty means no limit.
	Rate string
	// Delay is added to each packet that a host sends.
	Delay time.Duration
	// LossPercent is the percentage of the packets that a host sends which do not arrive.
	LossPercent float64
}

// hostNetwork is a number of simulated hosts.
type hostNetwork struct {
	hosts      []string // names of their namespaces
	namespaces []string // all namespaces to remove: the hosts' and the switch's
}

// hostDevice is the name of a host's network device.
const hostDevice = "eth0"

// createHosts creates n hosts that are connected by links like l. The caller must call Close, which
// removes them. It also removes hosts of processes that have ended without doing so.
func createHosts(ctx context.Context, n int, l hostLink) (*hostNetwork, error) {
	removeAbandoned(ctx)
	w := &hostNetwork{}
	if err := w.create(ctx, n, l); err != nil {
		return nil, fmt.Errorf("create hosts: %w", errors.Join(err, w.Close()))
	}
	return w, nil
}

// create creates the namespaces and their connections. The switch is in a namespace of its own,
// where no firewall of this machine filters its packets.
func (w *hostNetwork) create(ctx context.Context, n int, l hostLink) error {
	prefix := fmt.Sprintf("%s%d-%s-", namespacePrefix, os.Getpid(), strings.ToLower(rand.Text()[:6]))
	center := prefix + "switch"
	if err := w.addNamespace(ctx, center); err != nil {
		return fmt.Errorf("%w: %w: run this as root on Linux, outside restricted containers, with iproute2 installed", errNotPermitted, err)
	}
	if err := runProgram(ctx, "ip", "-n", center, "link", "add", "bridge", "up", "type", "bridge"); err != nil {
		return fmt.Errorf("%w: %w: this kernel has no bridges", errNotPermitted, err)
	}
	for i := range n {
		host := prefix + strconv.Itoa(i)
		if err := w.addNamespace(ctx, host); err != nil {
			return err
		}
		w.hosts = append(w.hosts, host)
		port := fmt.Sprint("port", i)
		for _, args := range [][]string{
			{"-n", center, "link", "add", port, "type", "veth", "peer", "name", hostDevice, "netns", host},
			{"-n", center, "link", "set", port, "master", "bridge", "up"},
			{"-n", host, "addr", "add", w.Address(i) + "/24", "dev", hostDevice},
			{"-n", host, "link", "set", hostDevice, "up"},
			{"-n", host, "link", "set", "lo", "up"},
		} {
			if err := runProgram(ctx, "ip", args...); err != nil {
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
func (w *hostNetwork) addNamespace(ctx context.Context, name string) error {
	if err := runProgram(ctx, "ip", "netns", "add", name); err != nil {
		return err
	}
	w.namespaces = append(w.namespaces, name)
	return nil
}

// shape limits the connection between a host and its port of the switch in both directions.
func (l hostLink) shape(ctx context.Context, host, center, port string) error {
	parent := []string{"root"}
	if l.Delay > 0 || l.LossPercent > 0 {
		args := []string{
			"-n", host, "qdisc", "add", "dev", hostDevice, "root", "handle", "1:", "netem", "limit", "100000",
			"delay", fmt.Sprintf("%dus", l.Delay.Microseconds()), "loss", fmt.Sprintf("%g%%", l.LossPercent),
		}
		if err := runProgram(ctx, "tc", args...); err != nil {
			if strings.Contains(err.Error(), "qdisc kind is unknown") {
				err = fmt.Errorf("%w: %w: load the kernel module sch_netem, or use neither a delay nor losses", errNoNetem, err)
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
	if err := runProgram(ctx, "tc", slices.Concat([]string{"-n", host, "qdisc", "add", "dev", hostDevice}, parent, tbf)...); err != nil {
		return err
	}
	return runProgram(ctx, "tc", slices.Concat([]string{"-n", center, "qdisc", "add", "dev", port, "root"}, tbf)...)
}

// Address returns the IP address of a host. 192.0.2.0/24 is reserved for examples (RFC 5737).
func (*hostNetwork) Address(host int) string { return fmt.Sprint("192.0.2.", host+1) }

// Name returns the name of a host's network namespace.
func (w *hostNetwork) Name(host int) string { return w.hosts[host] }

// Command returns the command line that runs a program on a host.
func (w *hostNetwork) Command(host int, argv ...string) []string {
	return append([]string{"ip", "netns", "exec", w.hosts[host]}, argv...)
}

// Disconnect cuts the connection of a host. Nobody is notified, as if its cable was pulled.
func (w *hostNetwork) Disconnect(ctx context.Context, host int) error {
	return runProgram(ctx, "ip", "-n", w.hosts[host], "link", "set", hostDevice, "down")
}

// Close removes the hosts. Processes that still run on them keep their namespaces, without a
// connection, until they end.
func (w *hostNetwork) Close() error {
	var errs []error
	for _, name := range slices.Backward(w.namespaces) {
		errs = append(errs, runProgram(context.Background(), "ip", "netns", "del", name)) // also after the end of createHosts's context
	}
	w.namespaces = nil
	return errors.Join(errs...)
}

// namespacePrefix begins the names of namespaces. The identifier of the process follows.
const namespacePrefix = "lockstep-"

// removeAbandoned removes namespaces of processes that no longer exist, which were killed
// before they could do so. It ignores errors, because another process may do the same.
func removeAbandoned(ctx context.Context) {
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		return // no namespace was ever created
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), namespacePrefix)
		number, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(number)
		if ours && err == nil && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = runProgram(ctx, "ip", "netns", "del", e.Name())
		}
	}
}

// runProgram runs a program, and returns an error with its output if it fails.
func runProgram(ctx context.Context, program string, args ...string) error {
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// listNamespaces returns the names of all network namespaces of this machine.
func listNamespaces(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestLinksAreLimited checks that the kernel limits both directions of each link as requested.
func TestLinksAreLimited(t *testing.T) {
	for name, tt := range map[string]struct {
		link hostLink
		want []string // in the rules of a host
	}{
		"rate":  {hostLink{Rate: "100mbit"}, []string{"tbf", "rate 100Mbit"}},
		"netem": {hostLink{Rate: "100mbit", Delay: 5 * time.Millisecond, LossPercent: 0.5}, []string{"netem", "delay 5ms", "loss 0.5%", "tbf", "rate 100Mbit"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHosts(t, 2, tt.link)
			for i := range 2 {
				out, err := exec.Command("tc", "-n", w.Name(i), "qdisc", "show", "dev", hostDevice).Output()
				for _, want := range tt.want {
					if !strings.Contains(string(out), want) {
						t.Errorf("host %d: %v, rules %q, want %q", i, err, out, want)
					}
				}
			}
			out, err := exec.Command("tc", "-n", w.namespaces[0], "qdisc", "show", "dev", "port1").Output()
			if !strings.Contains(string(out), "rate 100Mbit") {
				t.Errorf("port of host 1: %v, rules %q", err, out)
			}
		})
	}
}

// TestNothingIsLeft checks that Close removes every namespace, that createHosts does so if it fails, and
// that createHosts removes what a process that was killed has left.
func TestNothingIsLeft(t *testing.T) {
	w := newHosts(t, 3, hostLink{})
	created := slices.Clone(w.namespaces)
	if len(created) != 4 {
		t.Errorf("created %v, want 3 hosts and a switch", created)
	}
	for _, name := range created {
		if !slices.Contains(listNamespaces(t), name) {
			t.Errorf("%s does not exist", name)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range created {
		if slices.Contains(listNamespaces(t), name) {
			t.Errorf("%s is left", name)
		}
	}

	// The rate is valid here, but too large for tc, which therefore fails after namespaces exist.
	if _, err := createHosts(t.Context(), 2, hostLink{Rate: strings.Repeat("9", 400) + "gbit"}); err == nil || errors.Is(err, errNotPermitted) {
		t.Errorf("an impossible rate: error %v", err)
	}
	own := namespacePrefix + strconv.Itoa(os.Getpid()) + "-"
	if left := slices.DeleteFunc(listNamespaces(t), func(name string) bool { return !strings.HasPrefix(name, own) }); len(left) > 0 {
		t.Errorf("%v are left after an error", left)
	}

	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	abandoned := namespacePrefix + strconv.Itoa(ended.Process.Pid) + "-test-0"
	if err := runProgram(t.Context(), "ip", "netns", "add", abandoned); err != nil {
		t.Fatal(err)
	}
	newHosts(t, 1, hostLink{})
	if slices.Contains(listNamespaces(t), abandoned) {
		t.Errorf("%s is left", abandoned)
	}
}
