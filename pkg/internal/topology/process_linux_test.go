package topology

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestSetThread checks that a process inherits the CPUs of the thread that starts it, and
// that other threads keep theirs.
func TestSetThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, err := AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	m, err := ReadMachine(os.DirFS("/sys/devices/system"))
	if err != nil {
		m = NewFlatMachine(all) // a sandbox without /sys
	}
	if got := m.RestrictToCPUs(all).CPUIDs(); !slices.Equal(got, all) {
		t.Errorf("the topology has CPUs %v of the allowed %v", got, all)
	}
	one := all[len(all)-1:]
	if err := BindThread(one); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("grep", "Cpus_allowed_list", "/proc/self/status").Output()
	if _, text, _ := strings.Cut(strings.TrimSpace(string(out)), "\t"); err != nil || text != FormatCPUList(one) {
		t.Errorf("the process may use CPUs %q (%v), want %s", text, err, FormatCPUList(one))
	}
	other := make(chan []int)
	go func() {
		cpus, _ := AllowedCPUs()
		other <- cpus
	}()
	if got := <-other; !slices.Equal(got, all) {
		t.Errorf("another thread may use %v, want %v", got, all)
	}
	if err := BindThread(all); err != nil {
		t.Fatal(err)
	}
	if got, err := AllowedCPUs(); err != nil || !slices.Equal(got, all) {
		t.Errorf("afterwards the thread may use %v (%v), want %v", got, err, all)
	}
	if err := BindThread(nil); err == nil || !strings.Contains(err.Error(), "bind to CPUs") {
		t.Errorf("no CPUs give %v", err)
	}
}
