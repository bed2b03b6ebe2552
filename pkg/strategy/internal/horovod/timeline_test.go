package horovod

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/collective"
)

// event is an event of a timeline.
type event struct {
	Name  string   `json:"name"`
	Phase string   `json:"ph"`
	Time  *float64 `json:"ts"`
	PID   *int     `json:"pid"`
	Dur   *float64 `json:"dur"`
	Args  map[string]any
}

// readTimeline returns the events of a timeline, which must be a JSON array.
func readTimeline(t *testing.T, path string) []event {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var events []event
	if err := json.Unmarshal(text, &events); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return events
}

// TestTimeline: the file is complete JSON after each step; every tensor is a process whose spans
// are those of Horovod, nested and in the order of time.
func TestTimeline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "timeline.json")
	timeline, err := CreateTimeline(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := readTimeline(t, path); len(got) != 2 {
		t.Errorf("a new timeline has %d events, want the 2 that describe it", len(got))
	}
	errs := together(collective.InProcess(2), func(g collective.Group) error {
		c := newController(g, Options{FusionBytes: 20}) // the first two tensors together
		if g.Rank() == 0 {
			c.SetTimeline(timeline)
		}
		for round := range 2 {
			tensors := random(g.Rank(), false, 3, 2, 4)
			tensors[2].Name = `fc."weight"`
			if _, err := step(t.Context(), c, tensors, len(tensors)); err != nil {
				return err
			}
			if g.Rank() == 0 {
				if got, want := len(readTimeline(t, path)), 2+3*2+(round+1)*(3*(2+2+2+2)+2*4); got != want {
					return fmt.Errorf("%d events after round %d, want %d", got, round, want)
				}
			}
		}
		return nil
	})
	if err := errors.Join(append(errs, timeline.Close())...); err != nil {
		t.Fatal(err)
	}
	fused := "(NEGOTIATE_ALLREDUCE 0 1) (ALLREDUCE (MEMCPY_IN_FUSION_BUFFER) (IN_PROCESS_ALLREDUCE) (MEMCPY_OUT_FUSION_BUFFER)) "
	alone := "(NEGOTIATE_ALLREDUCE 0 1) (ALLREDUCE (IN_PROCESS_ALLREDUCE)) "
	want := map[string]string{"layer0.weight": fused + fused, "layer1.weight": fused + fused, `fc."weight"`: alone + alone}
	for name, spans := range describeTimeline(t, readTimeline(t, path)) {
		// Either rank may announce a tensor first.
		if spans = strings.ReplaceAll(spans, "1 0", "0 1"); spans != want[name] {
			t.Errorf("%s: got %s, want %s", name, spans, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("no spans of %v", want)
	}
	if _, err := CreateTimeline(filepath.Join(path, "below a file")); err == nil || !strings.HasPrefix(err.Error(), "create timeline: ") {
		t.Errorf("got error %v", err)
	}
}

// describeTimeline returns the spans of each tensor, in parentheses.
func describeTimeline(t *testing.T, events []event) map[string]string {
	t.Helper()
	names, open, last := map[int]string{}, map[int]int{}, 0.0
	spans := map[string]string{}
	for _, e := range events {
		if e.PID == nil || e.Phase != "M" && e.Time == nil {
			t.Fatalf("%+v has no process or no time", e)
		}
		name := names[*e.PID]
		if e.Phase != "M" {
			if *e.Time < last {
				t.Errorf("%+v is before its predecessor", e)
			}
			last = *e.Time
		}
		switch e.Phase {
		case "M":
			if n, ok := e.Args["name"].(string); ok {
				names[*e.PID] = n
			}
		case "B":
			open[*e.PID]++
			spans[name] = strings.TrimSuffix(spans[name], " ") + " (" + e.Name + " "
		case "X":
			spans[name] += e.Name + " "
		case "E":
			open[*e.PID]--
			spans[name] = strings.TrimSuffix(spans[name], " ") + ") "
			if shape := e.Args["shape"]; open[*e.PID] == 0 && shape != nil && !slices.Contains([]any{"[3]", "[2]", "[4]"}, shape) {
				t.Errorf("shape %v", shape)
			}
		default:
			t.Errorf("unknown phase %+v", e)
		}
	}
	for pid, n := range open {
		if n != 0 {
			t.Errorf("%d spans of process %d have no end", n, pid)
		}
	}
	for name, text := range spans {
		spans[name] = strings.TrimPrefix(text, " ")
	}
	return spans
}
