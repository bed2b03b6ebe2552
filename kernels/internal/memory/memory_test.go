package memory

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNewLimit(t *testing.T) {
	const mib = 1 << 20
	for setting, want := range map[string]int64{
		"off": 0, "1000000": 1000000, "512MB": 512e6, "512 MiB": 512 * mib, "1.5GiB": 1536 * mib, "2GB": 2e9, "8gib": 8 << 30, "64KiB": 64 << 10, "3kB": 3000,
	} {
		if l, err := NewLimit(setting); err != nil || l.Bytes != want || !l.Set {
			t.Errorf("%s=%s gives %+v, %v; want %d bytes", EnvVariable, setting, l, err, want)
		}
	}
	for _, setting := range []string{"much", "0", "-1GB", "8Gi B", "GB", "NaN", "1e300GB", "80%"} {
		if l, err := NewLimit(setting); err == nil || !strings.Contains(err.Error(), EnvVariable) {
			t.Errorf("%s=%s gives %+v, %v", EnvVariable, setting, l, err)
		}
	}
	l, err := NewLimit("")
	if err != nil || l.Set || l.Bytes != l.Capacity/10*8 {
		t.Errorf("without %s the limit is %+v, %v", EnvVariable, l, err)
	}
}

func TestCapacity(t *testing.T) {
	const machine = 1000
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no /proc", nil, machine},
		{"version 2", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "300\n"}, 300},
		{"version 2, group above", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "400\n"}, 400},
		{"version 2, smallest", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "500\n", "sys/fs/cgroup/a/memory.max": "400\n"}, 400},
		{"container", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "200\n"}, 200},
		{"container that shows the path of the machine", map[string]string{"proc/self/cgroup": "0::/docker/1\n", "sys/fs/cgroup/memory.max": "200\n"}, 200},
		{"version 1", map[string]string{"proc/self/cgroup": "5:cpu:/x\n4:memory:/a\n0::/\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "600\n"}, 600},
		{"version 1, no limit", map[string]string{"proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, machine},
		{"none", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, machine},
		{"not readable", map[string]string{"proc/self/cgroup": "nonsense\n0::/a\n", "sys/fs/cgroup/a/memory.max": "?\n"}, machine},
	} {
		root := t.TempDir()
		for name, text := range tt.files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryCapacity(root, machine); got != tt.want {
			t.Errorf("%s: capacity is %d, want %d", tt.name, got, tt.want)
		}
	}
	if got := memoryCapacity(t.TempDir(), 0); got != 0 {
		t.Errorf("where nothing is known the capacity is %d", got)
	}
}

func TestUsed(t *testing.T) {
	if UsedBytes() == 0 {
		t.Skip("memory in use: no /proc/self/statm here")
	}
	before := UsedBytes()
	b := make([]byte, 64<<20)
	for i := range b {
		b[i] = byte(i)
	}
	if grown := UsedBytes() - before; grown < 60<<20 || grown > 200<<20 {
		t.Errorf("after filling %d bytes %d more are in use", len(b), grown)
	}
}

// Each table says how much memory is in use every half second, with a limit of
// 1000 and a capacity of 2000 bytes, and what the watch does.
func TestWatch(t *testing.T) {
	for _, tt := range []struct {
		name  string
		used  []int64
		cells []int // that run; the last goes on
		want  string
	}{
		{"below the limit", []int64{100, 900, 1000, 100}, nil, ""},
		{"interrupted, and memory grows no more", []int64{100, 1100, 1300, 1300, 1300, 1340, 1300, 1300, 1300, 1300}, nil, "1 interrupt"},
		{"interrupted, and memory is freed", []int64{1100, 500, 500, 500, 500, 500}, nil, "0 interrupt"},
		{"memory still grows", []int64{100, 1100, 1200, 1300, 1400, 1500, 1600}, nil, "1 interrupt, 5 end"},
		{"memory grows in steps", []int64{100, 1100, 1100, 1100, 1100, 1100, 1100, 1100, 1500}, nil, "1 interrupt, 8 end"},
		{"freed while it grew", []int64{1100, 100, 100, 300, 900, 950, 950}, nil, "0 interrupt"},
		{"another cell began", []int64{1100, 1100, 1100, 1120, 1130, 1140, 1140}, []int{1, 2}, "0 interrupt"},
		{"another cell began at once and fills the memory", []int64{1100, 1100, 1300, 1300, 1300}, []int{1, 2}, "0 interrupt, 2 interrupt"},
		{"a later cell may look, and not use more", []int64{1100, 1100, 1100, 1100, 1100, 1110, 1140, 1160, 1160, 1160, 1160, 1160}, []int{1, 1, 1, 2}, "0 interrupt, 7 interrupt"},
		{"again after it was freed", []int64{1100, 100, 100, 100, 100, 100, 1100, 100, 100, 100, 100}, nil, "0 interrupt, 6 interrupt"},
		{"no time for the grace", []int64{100, 1100, 1900}, nil, "1 interrupt, 2 end"},
		{"all at once", []int64{100, 1950}, nil, "1 end"},
	} {
		var did []string
		i := 0
		w := Watcher{
			Limit: Limit{Bytes: 1000, Capacity: 2000},
			Used:  func() int64 { return tt.used[i] },
			Cell: func() int {
				if len(tt.cells) == 0 {
					return 1
				}
				return tt.cells[min(i, len(tt.cells)-1)]
			},
		}
		do := func(what string) func(error) {
			return func(err error) {
				if !strings.HasPrefix(err.Error(), "memory limit: the kernel use") {
					t.Errorf("%s: %v", tt.name, err)
				}
				did = append(did, string(rune('0'+i))+" "+what)
			}
		}
		w.Interrupt, w.End = do("interrupt"), do("end")
		start := time.Now()
		for i = range tt.used {
			w.check(start.Add(time.Duration(i) * grace / 4))
			if slices.ContainsFunc(did, func(s string) bool { return strings.HasSuffix(s, "end") }) {
				break
			}
		}
		if got := strings.Join(did, ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
