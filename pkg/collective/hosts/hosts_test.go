package hosts

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// newNetwork creates hosts for a test, which is skipped where this is not possible.
func newNetwork(t *testing.T, n int, l Link) *Network {
	t.Helper()
	w, err := New(t.Context(), n, l)
	if errors.Is(err, ErrNotPermitted) || errors.Is(err, ErrNoNetem) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// namespaces returns the names of all network namespaces of this machine.
func namespaces(t *testing.T) []string {
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
		link Link
		want []string // in the rules of a host
	}{
		"rate":  {Link{Rate: "100mbit"}, []string{"tbf", "rate 100Mbit"}},
		"netem": {Link{Rate: "100mbit", Delay: 5 * time.Millisecond, LossPercent: 0.5}, []string{"netem", "delay 5ms", "loss 0.5%", "tbf", "rate 100Mbit"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNetwork(t, 2, tt.link)
			for i := range 2 {
				out, err := exec.Command("tc", "-n", w.Name(i), "qdisc", "show", "dev", device).Output()
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

// TestNothingIsLeft checks that Close removes every namespace, that New does so if it fails, and
// that New removes what a process that was killed has left.
func TestNothingIsLeft(t *testing.T) {
	w := newNetwork(t, 3, Link{})
	created := slices.Clone(w.namespaces)
	if len(created) != 4 {
		t.Errorf("created %v, want 3 hosts and a switch", created)
	}
	for _, name := range created {
		if !slices.Contains(namespaces(t), name) {
			t.Errorf("%s does not exist", name)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range created {
		if slices.Contains(namespaces(t), name) {
			t.Errorf("%s is left", name)
		}
	}

	// The rate is valid here, but too large for tc, which therefore fails after namespaces exist.
	if _, err := New(t.Context(), 2, Link{Rate: strings.Repeat("9", 400) + "gbit"}); err == nil || errors.Is(err, ErrNotPermitted) {
		t.Errorf("an impossible rate: error %v", err)
	}
	own := namePrefix + strconv.Itoa(os.Getpid()) + "-"
	if left := slices.DeleteFunc(namespaces(t), func(name string) bool { return !strings.HasPrefix(name, own) }); len(left) > 0 {
		t.Errorf("%v are left after an error", left)
	}

	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	abandoned := namePrefix + strconv.Itoa(ended.Process.Pid) + "-test-0"
	if err := run(t.Context(), "ip", "netns", "add", abandoned); err != nil {
		t.Fatal(err)
	}
	newNetwork(t, 1, Link{})
	if slices.Contains(namespaces(t), abandoned) {
		t.Errorf("%s is left", abandoned)
	}
}

// TestNotPermitted checks the error for a user who may not create hosts, or lacks iproute2.
func TestNotPermitted(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := New(t.Context(), 2, Link{})
	if !errors.Is(err, ErrNotPermitted) || !strings.Contains(err.Error(), "run this as root on Linux, outside restricted containers, with iproute2 installed") {
		t.Errorf("error %v", err)
	}
}

func TestInvalidLinks(t *testing.T) {
	for want, l := range map[string]Link{
		`invalid rate "fast": use a whole number`:      {Rate: "fast"},
		`invalid rate "0mbit"`:                         {Rate: "0mbit"},
		"invalid delay -1s":                            {Delay: -time.Second},
		"invalid loss of 100 %: use at least 0":        {LossPercent: 100},
		"create hosts: invalid loss of -0.5 %: use at": {LossPercent: -0.5},
	} {
		if _, err := New(context.Background(), 2, l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", l, err, want)
		}
	}
	if _, err := New(context.Background(), 0, Link{}); err == nil {
		t.Error("no hosts: no error")
	}
}
