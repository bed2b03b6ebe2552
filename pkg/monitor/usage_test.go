package monitor

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/runs/usage"
)

// fakeFiles writes files of a simulated /proc and /sys.
func fakeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Dir(path), filepath.Base(path), text)
	}
}

// netDev returns a /proc/net/dev with the bytes of eth0, which is physical, of a bridge and of lo.
func netDev(received, sent, bridge, loopback string) string {
	line := func(name, in, out string) string {
		return name + ": " + in + " 1 0 0 0 0 0 0 " + out + " 1 0 0 0 0 0 0\n"
	}
	return "Inter-|   Receive |  Transmit\n face |bytes packets|bytes packets\n" +
		line("    lo", loopback, loopback) + line("  eth0", received, sent) + line("docker0", bridge, bridge)
}

// TestUsageOfSimulatedMachine: rates are differences over the interval; a bridge does not count
// beside a physical interface; the energy counter starts again from 0.
func TestUsageOfSimulatedMachine(t *testing.T) {
	dir := t.TempDir()
	m := machineReader{proc: filepath.Join(dir, "proc"), sys: filepath.Join(dir, "sys")}
	state := func(user int, net, energy string) {
		fakeProc(t, m.proc, [10]int{user}, map[int]fakeProcess{10: {parent: 1, start: 5, user: user / 2}})
		fakeFiles(t, dir, map[string]string{
			"proc/meminfo": "MemTotal:     1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\n", "proc/self/net/dev": net,
			"sys/class/net/eth0/device": "", "sys/class/net/docker0/type": "1",
			"sys/class/powercap/intel-rapl:0/name": "package-0\n", "sys/class/powercap/intel-rapl:0/energy_uj": energy + "\n",
			"sys/class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850\n",
			"sys/class/powercap/intel-rapl:0:0/name":              "core\n", "sys/class/powercap/intel-rapl:0:0/energy_uj": "5\n",
			"sys/class/powercap/intel-rapl:1/name": "psys\n",
		})
	}
	state(1000, netDev("1000", "500", "9000", "100"), "262143328000")
	u := &UsageRecorder{machine: m, cpu: NewCPUMeter(10), host: "a", gpu: func() GPUSample { return GPUSample{90, 5e9, math.NaN()} }}
	u.cpu.proc = m.proc
	first := u.measureUsage()
	if first.MemoryBytes != float64(5*os.Getpagesize()) || first.MachineMemoryBytes != 600*1024 || !math.IsNaN(first.CPUCores) || !math.IsNaN(first.ReceivedBytesPerSecond) {
		t.Errorf("first sample %+v", first)
	}
	u.last.time = u.last.time.Add(-10 * time.Second)
	state(3000, netDev("3000", "900", "99000", "200"), "79150") // 80000 µJ with the range of the counter
	s := u.measureUsage()
	near := func(name string, got, want float64) {
		t.Helper()
		if math.IsNaN(got) || math.Abs(got-want) > 0.001*want {
			t.Errorf("%s: got %g, want %g", name, got, want)
		}
	}
	if s.Seconds < 10 {
		t.Errorf("got %g s, want at least 10 s", s.Seconds)
	}
	near("CPU time of the machine", s.MachineCPUCores*s.Seconds, 20) // 2000 ticks of 10 ms
	near("CPU time", s.CPUCores*s.Seconds, 10)
	near("received", s.ReceivedBytesPerSecond*s.Seconds, 2000)
	near("sent", s.SentBytesPerSecond*s.Seconds, 400)
	near("loopback", s.LoopbackBytesPerSecond*s.Seconds, 100)
	near("joules", s.ProcessorWatts*s.Seconds, 0.08)
	near("GPU", s.GPUPercent, 90)
	near("GPU memory", s.GPUMemoryBytes, 5e9)
	if !math.IsNaN(s.GPUWatts) || s.Host != "a" {
		t.Errorf("%+v", s)
	}

	// Without a physical interface, as in a container, all interfaces count.
	if err := os.RemoveAll(filepath.Join(dir, "sys/class/net/eth0")); err != nil {
		t.Fatal(err)
	}
	if got, err := m.networkTraffic(); err != nil || got.received != 3000+99000 {
		t.Errorf("%+v, %v", got, err)
	}
	// A power that only some processors report, or that the user may not read, is unknown.
	if err := os.Remove(filepath.Join(dir, "sys/class/powercap/intel-rapl:0/energy_uj")); err != nil {
		t.Fatal(err)
	}
	if c := m.energyCounters(); c != nil {
		t.Errorf("%+v", c)
	}
	if s := u.measureUsage(); !math.IsNaN(s.ProcessorWatts) {
		t.Errorf("%+v", s)
	}
}

// TestUsageIsRecorded: this process's usage is in the file, with the epoch, before Stop.
func TestUsageIsRecorded(t *testing.T) {
	if _, err := NewCPUMeter(os.Getpid()).Sample(); err != nil {
		t.Skipf("this machine does not say what its processes use: %v", err)
	}
	dir := t.TempDir()
	u, err := startUsage(dir, 3, os.Getpid(), nil, machineReader{proc: "/proc", sys: "/sys"}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	u.SetEpoch(2)
	var samples []usage.Sample
	for len(samples) < 3 || samples[len(samples)-1].Epoch == 0 {
		records, problems, err := usage.Read(dir)
		if err != nil || len(problems) > 0 || len(records) != 1 {
			t.Fatalf("%+v, %v, %v", records, problems, err)
		}
		samples = records[0].Samples
		time.Sleep(time.Millisecond)
	}
	if err := u.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := u.Stop(); err != nil {
		t.Errorf("second call: %v", err)
	}
	s := samples[len(samples)-1]
	if s.Epoch != 2 || s.MemoryBytes < 1e6 || !(s.CPUCores >= 0) || s.Host == "" || !(s.MachineMemoryBytes > s.MemoryBytes/100) {
		t.Errorf("%+v", s)
	}
}

// TestUsageStopsWhenItCannotBeWritten: the recording ends with an error, and the process goes on.
func TestUsageStopsWhenItCannotBeWritten(t *testing.T) {
	if _, err := NewCPUMeter(os.Getpid()).Sample(); err != nil {
		t.Skipf("this machine does not say what its processes use: %v", err)
	}
	u, err := startUsage(t.TempDir(), 0, os.Getpid(), nil, machineReader{proc: "/proc", sys: "/sys"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if u.Err() != nil {
		t.Error(u.Err())
	}
	if err := u.writer.Close(); err != nil {
		t.Fatal(err)
	}
	u.last.time = u.last.time.Add(-time.Second)
	if err := u.Stop(); err == nil || !strings.Contains(err.Error(), "record usage") {
		t.Errorf("%v", err)
	}
}

// TestNoUsage: a machine that measures nothing leaves no file, and a nil Usage does nothing.
func TestNoUsage(t *testing.T) {
	dir := t.TempDir()
	u, err := startUsage(dir, 0, os.Getpid(), nil, machineReader{proc: dir, sys: dir}, time.Hour)
	if err != nil || u.Stop() != nil {
		t.Errorf("%v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
	u = nil
	u.SetEpoch(1)
	if u.Err() != nil || u.Stop() != nil {
		t.Error("a nil Usage has an error")
	}
	for value, want := range map[string]bool{"": true, "on": true, "off": false} {
		if got, err := UsageEnabled(func(string) string { return value }); err != nil || got != want {
			t.Errorf("%q: %v, %v", value, got, err)
		}
	}
	if _, err := UsageEnabled(func(string) string { return "no" }); err == nil {
		t.Error("no is taken")
	}
}

// BenchmarkUsageSample measures one sample and its row. Once a second is less than 1 % of a core if it
// takes less than 10 ms.
func BenchmarkUsageSample(b *testing.B) {
	u, err := startUsage(b.TempDir(), 0, os.Getpid(), nil, machineReader{proc: "/proc", sys: "/sys"}, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	if u.writer == nil {
		b.Skip("this machine does not say what its processes use")
	}
	for b.Loop() {
		if !u.recordSample() {
			b.Fatal(u.Err())
		}
	}
	if err := u.Stop(); err != nil {
		b.Fatal(err)
	}
}

func TestIntervalAfter(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 1, 7199: 1, 7200: 2, 14399: 2, 14400: 4, 21600: 8} {
		if got := samplingInterval(n, time.Second); got != want*time.Second {
			t.Errorf("after %d samples: got %v, want %v", n, got, want*time.Second)
		}
	}
}
