package train

import (
	"reflect"
	"testing"

	"lockstep/pkg/runs"
)

func TestReadBinding(t *testing.T) {
	for _, tt := range []struct {
		text  string
		world int
		want  *runs.Binding
	}{
		{"", 1, nil},
		{"{}", 1, nil},
		{"cores", 1, nil},
		{`{"mode":"none","reason":"why"}`, 2, &runs.Binding{Mode: "none", Reason: "why"}},
		{`{"mode":"cores","cpus":["0-1","2"],"allowed_cpus":"0-3"}`, 2, &runs.Binding{Mode: "cores", CPUs: []string{"0-1", "2"}, Allowed: "0-3"}},
		{`{"mode":"cores","cpus":["0-1","2"]}`, 3, nil}, // of another run
	} {
		getenv := func(name string) string {
			if name != "LOCKSTEP_BINDING" {
				t.Errorf("reads %s", name)
			}
			return tt.text
		}
		if got := readCPUBinding(getenv, tt.world); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s for %d workers: got %+v, want %+v", tt.text, tt.world, got, tt.want)
		}
	}
}

func TestSharingWorkers(t *testing.T) {
	for _, tt := range []struct {
		name string
		b    *runs.Binding
		rank int
		want int
	}{
		{"no launcher", nil, 0, 4},
		{"not bound", &runs.Binding{Mode: "none"}, 1, 4},
		{"cores of its own", &runs.Binding{Mode: "cores", CPUs: []string{"0", "1", "2", "3"}}, 2, 1},
		{"two on each node", &runs.Binding{Mode: "numa", CPUs: []string{"0-3", "0-3", "4-7", "4-7"}}, 3, 2},
		{"in turn", &runs.Binding{Mode: "cores", CPUs: []string{"0", "1", "0", "1"}}, 0, 2},
		{"not a list", &runs.Binding{Mode: "cores", CPUs: []string{"x", "1", "2", "3"}}, 0, 4},
	} {
		if got := countWorkersSharingCPUs(tt.b, tt.rank, 4); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
	// A worker with a core of its own keeps the processor that exchanges gradients meanwhile.
	if got := Processors(1, 1, 1, true); got != 2 {
		t.Errorf("one thread on one core: GOMAXPROCS %d, want 2", got)
	}
}

func TestDescribeHost(t *testing.T) {
	all := runs.DescribeHost().Cores
	for _, tt := range []struct {
		b    *runs.Binding
		want int
	}{
		{nil, all},
		{&runs.Binding{Mode: "none", Allowed: "0-63"}, all},
		{&runs.Binding{Mode: "cores", CPUs: []string{"0"}, Allowed: "0-63"}, 64},
		{&runs.Binding{Mode: "cores", CPUs: []string{"0"}}, all},
	} {
		if got := describeHost(tt.b).Cores; got != tt.want {
			t.Errorf("%+v: got %d cores, want %d", tt.b, got, tt.want)
		}
	}
}
