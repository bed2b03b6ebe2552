package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/buildid"
	"lockstep/pkg/internal/clib"
)

// TestReportLines writes the lines of two tasks, with a long text, between lines of other
// programs, and reads them back.
func TestReportLines(t *testing.T) {
	var out strings.Builder
	first, second := &taskReporter{out: &out, id: "A"}, &taskReporter{out: &out, id: "A", rank: 1}
	other := &taskReporter{out: &out, id: "B", rank: 2}
	first.writeLine(outputLine{Facts: &nodeFacts{Node: "n1"}})
	out.WriteString("srun: error: <a message>\n\n")
	second.addFinding(failedFinding(checkScratch, strings.Repeat("é<&\n", 300), "next"))
	other.writeLine(outputLine{Facts: &nodeFacts{Node: "n3"}})
	out.WriteString("0: ") // as srun --label does
	first.writeLine(outputLine{Facts: &nodeFacts{Node: "n1", Ended: 1}})
	for text := range strings.Lines(out.String()) {
		if len(text) >= 1024 {
			t.Errorf("a line has %d bytes", len(text))
		}
	}
	ranks, others := readRankOutputs(strings.NewReader(out.String()), "A")
	if len(ranks) != 2 || ranks[0].facts.Ended != 1 || ranks[1].facts != nil || len(ranks[1].findings) != 1 {
		t.Fatalf("got ranks %+v", ranks)
	}
	if d := ranks[1].findings[0].Detail; len(d) > maxTextBytes || !strings.HasSuffix(d, "…") || strings.ContainsRune(d, '\n') {
		t.Errorf("got detail %q", d)
	}
	if len(others) != 2 || others[0] != "srun: error: <a message>" { // and the line of B
		t.Errorf("got other lines %q", others)
	}
}

// node returns what a task without problems has reported.
func node(name string, n networkFacts) *rankOutput {
	return &rankOutput{facts: &nodeFacts{Node: name, World: 2, Build: buildid.ID, Driver: "550.1", Joined: true, Ended: 1, Network: &n}}
}

func TestReport(t *testing.T) {
	fast := networkFacts{BytesPerSecond: 5e9, LatencySeconds: 2e-6}
	bad := failedFinding(checkScratch, "cannot use /s: permission denied", "write another folder to a copy of the profile")
	for _, c := range []struct {
		name   string
		change func(ranks map[int]*rankOutput)
		want   []string // in the text of the report
		failed int
	}{
		{"good", func(map[int]*rankOutput) {}, []string{"5.0 GB/s to b, latency 2 µs", "5.0 GB/s from a", "300 µs behind a, ± 20 µs", "No problem"}, 0},
		{"the same problem twice", func(ranks map[int]*rankOutput) {
			for _, o := range ranks {
				o.findings = []Finding{bad}
			}
		}, []string{"1. a and b, scratch: cannot use /s: permission denied\n     Next: write another folder to a copy of the profile.\n", "\nTo change a copy of the profile: lockstep sites show s > my-site.yaml, edit"}, 1},
		{"clock", func(ranks map[int]*rankOutput) {
			ranks[1].facts.Network.SkewSeconds = 2.5
		}, []string{"1. b, clock (warning): 2.5 s ahead of a", "(NTP)"}, 0},
		{"slow network", func(ranks map[int]*rankOutput) {
			ranks[0].facts.Network.BytesPerSecond = 1e6
		}, []string{"1. a, bandwidth (warning): 1 MB/s to b", "less than a network of 1 Gb/s"}, 0},
		{"driver", func(ranks map[int]*rankOutput) {
			ranks[1].facts.Driver = "535.2"
		}, []string{`1. b, versions (warning): `, `on a the driver of the GPUs is "550.1"`}, 0},
		{"build", func(ranks map[int]*rankOutput) {
			ranks[0].facts.Build = "other"
		}, []string{"1. a, versions: this node runs lockstep build other"}, 1},
		{"ended early", func(ranks map[int]*rankOutput) {
			ranks[1].facts.Ended = 0
		}, []string{"1. b, task: its task ended before all checks were done", "Messages of the job\n  a message\n"}, 1},
		{"missing", func(ranks map[int]*rankOutput) {
			delete(ranks, 1)
			ranks[0].facts.Network = nil
			ranks[0].findings = []Finding{failedFinding(checkRendezvous, "join run as rank 0 of 2: missing rank 1", "first solve")}
		}, []string{"1. given, task: its task has reported nothing", "2. a, rendezvous: join run as rank 0 of 2: missing rank 1 (given)"}, 2},
		{"one node with two tasks", func(ranks map[int]*rankOutput) {
			ranks[1].facts.Node = "a"
		}, []string{"a task 0 (rank 0)", "a task 1 (rank 1)", "to a task 1"}, 0},
		{"a name with a control character", func(ranks map[int]*rankOutput) {
			ranks[1].facts.Node = "b\x1b[2J"
		}, []string{`b\x1b[2J (rank 1)`}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			ranks := map[int]*rankOutput{0: node("a", fast), 1: node("b", networkFacts{SkewSeconds: -3e-4, SkewError: 2e-5})}
			c.change(ranks)
			r := newReport(2, []string{"a", "given"}, ranks, []string{"a message"})
			r.Site, r.Job, r.QueueSeconds, r.RunSeconds = "s", "7", 3, 4.25
			c.want = append(c.want, "Site s, job 7: waited 3s in the queue, ran for 4.3s.\n")
			for _, want := range c.want {
				if !strings.Contains(r.String(), want) {
					t.Errorf("got report\n%s\nwant %q", r, want)
				}
			}
			if r.Failed() != c.failed {
				t.Errorf("got %d failures, want %d: %+v", r.Failed(), c.failed, r.Problems)
			}
			if _, err := json.Marshal(r); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReportOfFailedJob checks the report of a job that ended before any task began.
func TestReportOfFailedJob(t *testing.T) {
	r := newReport(2, []string{"a", "b"}, nil, nil)
	r.addJobProblem("its script ended with exit code 1", []string{"module: not found"})
	for _, want := range []string{"  --  task  its task has reported nothing", "1. a and b, job: its script ended with exit code 1, and no task has reported anything", "Messages of the job\n  module: not found"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("got report\n%s\nwant %q", r, want)
		}
	}
	if len(r.Problems) != 1 {
		t.Errorf("got problems %+v, want 1", r.Problems)
	}
}

// The meaning of patterns is that of NCCL_SOCKET_IFNAME:
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname
func TestMatchesInterface(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"ib0", "ib0", true},
		{"ib", "ib0", true},
		{"ib0", "ib", false},
		{"=ib", "ib0", false},
		{"=ib0,eth0", "eth0", true},
		{"eth,ib", "ib1", true},
		{"^lo,docker", "docker0", false},
		{"^lo,docker", "eth0", true},
		{"^=lo", "lo1", true},
	} {
		if got := matchesInterface(c.pattern, c.name); got != c.want {
			t.Errorf("%s matches %s: got %v, want %v", c.pattern, c.name, got, c.want)
		}
	}
}

func TestCompareInterface(t *testing.T) {
	all := []networkInterface{{name: "lo"}, {name: "eth0", addresses: []net.IP{net.IPv4(10, 0, 0, 1)}}, {name: "ib0"}}
	o := NodeOptions{Interface: "ib", Site: "my"}
	f := usedInterfaceFinding(o, "eth0 (10.0.0.1)", "eth0", all)
	if f.Result != ResultWarning || !strings.Contains(f.Detail, "names ib0") || !strings.Contains(f.Next, "address on ib0 to exports") {
		t.Errorf("got %+v, want a warning", f)
	}
	if f := usedInterfaceFinding(o, "ib0", "ib0", all); f.Result != ResultOK {
		t.Errorf("got %+v", f)
	}
	if f := usedInterfaceFinding(NodeOptions{}, "eth0", "eth0", all); f.Result != ResultOK {
		t.Errorf("got %+v", f)
	}
	if f := usedInterfaceFinding(NodeOptions{Interface: "hsn"}, "eth0", "eth0", all); f.Result != ResultFailed || !strings.Contains(f.Detail, "it has lo, eth0, ib0") {
		t.Errorf("got %+v", f)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "ib0"), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"25000\n": ", 25 Gb/s", "-1\n": "", "": ""} {
		if err := os.WriteFile(filepath.Join(dir, "ib0", "speed"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := interfaceSpeed(dir, "ib0"); got != want {
			t.Errorf("speed %q: got %q, want %q", text, got, want)
		}
	}
}

func TestDescribeGPUs(t *testing.T) {
	gpus := func(n int) *engine.Machine {
		m := &engine.Machine{Devices: []engine.Device{{Kind: "cpu"}}}
		for range n {
			m.Devices = append(m.Devices, engine.Device{Kind: "cuda", Name: "A100", Driver: "550.1"})
		}
		if n == 0 {
			m.NoGPU = "no driver"
		}
		return m
	}
	broken := gpus(1)
	broken.NoGPU = "cuDNN is missing"
	for _, c := range []struct {
		m       *engine.Machine
		asked   int
		visible string
		result  string
		want    string
	}{
		{gpus(0), 0, "", ResultOK, "none"},
		{gpus(4), 4, "0,1,2,3", ResultOK, "4 GPUs: A100; CUDA_VISIBLE_DEVICES=0,1,2,3"},
		{gpus(4), 0, "", ResultOK, "4 GPUs: A100"},
		{gpus(0), 4, "0,1,2,3", ResultFailed, "none can be used: no driver"},
		{gpus(2), 4, "0,1", ResultFailed, "CUDA_VISIBLE_DEVICES=0,1 shows 2 to this task"},
		{gpus(3), 4, "0,1,2,3", ResultFailed, "the driver finds 3 GPUs"},
		{broken, 1, "0", ResultFailed, "cannot be used: cuDNN is missing"},
	} {
		f := gpuFinding(NodeOptions{GPUs: c.asked}, c.m, c.visible)
		if f.Result != c.result || !strings.Contains(f.Detail, c.want) || (f.Next == "") != (f.Result == ResultOK) {
			t.Errorf("asked for %d, visible %s: got %+v, want %s %q", c.asked, c.visible, f, c.result, c.want)
		}
	}
	m := gpus(1)
	m.Libraries = []engine.Library{{Name: string(clib.NCCL), Problem: "not found", Advice: "install it"}}
	if f := ncclFinding(m, true); f.Result != ResultFailed || !strings.Contains(f.Next, "install it") {
		t.Errorf("NCCL is missing: got %+v", f)
	}
	m.Libraries[0] = engine.Library{Name: string(clib.NCCL), Version: "2.20.5", Path: "/lib/libnccl.so.2"}
	if f := ncclFinding(m, true); f.Result != ResultOK || !strings.HasPrefix(f.Detail, "2.20.5") {
		t.Errorf("got %+v", f)
	}
}

// TestFindMPI: an MPI that is installed but cannot be loaded is reported with the loader's reason.
func TestFindMPI(t *testing.T) {
	if !clib.Supported {
		t.Skip("no C library can be opened on this system")
	}
	for _, c := range []struct {
		err    error
		result string
		want   string
	}{
		{fs.ErrNotExist, ResultOK, "none found; only --on mpi"},
		{
			errors.New("libfabric.so.1: cannot open shared object file: No such file or directory"), ResultWarning,
			"Open MPI is found but not loadable: libmpi.so.40: libfabric.so.1: cannot open shared object file: No such file or directory: install the missing library",
		},
	} {
		s := clib.NewSearch(clib.Environment{
			Getenv: func(string) string { return "" }, System: []string{},
			Open: func(string) (uintptr, error) { return 0, c.err },
		})
		if f := mpiFinding(s); f.Result != c.result || !strings.Contains(f.Detail, c.want) || (f.Next == "") != (c.result == ResultOK) {
			t.Errorf("%v: got %+v, want %s %q", c.err, f, c.result, c.want)
		}
	}
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if f := markerFinding(ended, checkHome, dir, "A", adviceHome); f.Result != ResultFailed || !strings.Contains(f.Detail, "is not the same folder on this node: no such file") {
		t.Errorf("without a marker: got %+v", f)
	}
	if err := os.WriteFile(filepath.Join(dir, markerName("A")), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := markerFinding(t.Context(), checkHome, dir, "A", adviceHome); f.Result != ResultOK {
		t.Errorf("got %+v", f)
	}
	if f := scratchSpeedFinding("a", filepath.Join(dir, markerName("A"))); f.Result != ResultFailed || !strings.Contains(f.Detail, "not a directory") || !strings.Contains(f.Next, "copy of the profile") {
		t.Errorf("a file as scratch: got %+v", f)
	}
	t.Setenv("TMPDIR", filepath.Join(dir, "none"))
	if f := scratchSpeedFinding("", ""); f.Result != ResultFailed || strings.Contains(f.Detail+f.Next, "profile") || !strings.Contains(f.Next, "TMPDIR") {
		t.Errorf("this machine without a folder for temporary files: got %+v", f)
	}
	t.Setenv("TMPDIR", "")
	if f := scratchSpeedFinding("a", ""); !strings.Contains(f.Detail, "/tmp (the profile names no scratch folder)") {
		t.Errorf("a profile without a folder: got %+v", f)
	}
}

func TestFormats(t *testing.T) {
	for got, want := range map[string]string{
		formatRate(1.25e9): "1.2 GB/s", formatRate(98.76e6): "98.8 MB/s", formatShortDuration(2): "2 s", formatShortDuration(0.0312): "31.2 ms", formatShortDuration(4.5e-6): "4.5 µs",
		distributionName(func(string) ([]byte, error) { return []byte("ID=x\nPRETTY_NAME=\"My Linux 1\"\n"), nil }): "My Linux 1",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if _, err := ParseNodeOptions("{}"); err == nil {
		t.Error("no error for options without an id")
	}
	if text := addNodeNames("rank 1 is gone; rank 7 too", []string{"a", "b"}); text != "rank 1 (b) is gone; rank 7 too" {
		t.Errorf("got %q", text)
	}
}
