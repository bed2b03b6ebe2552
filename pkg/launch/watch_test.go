package launch

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"lockstep/pkg/notebook"
)

// cell records the display of a cell: the last text of each display id.
type cell struct {
	mu     sync.Mutex
	places []string // ids, in the order in which they came
	text   map[string]string
}

func (c *cell) display(v any, id string, update bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.text[id]; known != update {
		return fmt.Errorf("place %q: update is %v", id, update)
	}
	if !update {
		c.places = append(c.places, id)
	}
	c.text[id] = fmt.Sprint(v)
	return nil
}

func TestWatchShowsALineARun(t *testing.T) {
	c := &cell{text: map[string]string{}}
	notebook.SetHook(notebook.Hook{Context: context.Background, Display: c.display})
	defer notebook.SetHook(notebook.Hook{})
	s, _ := own(t, "sums", 1, 2)
	j, err := Local(notebook.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Watch(notebook.Context()); err != nil {
		t.Fatal(err)
	}
	// The worker's rows: loss 1/epoch, 20 samples/s, and the mean of rank+1 as IoU.
	want := [][]string{
		{"ddp-n1-s1 [", "2/2", "loss 0.5000  IoU 1.0000  20.0 samples/s"},
		{"ddp-n2-s1 [", "2/2", "loss 0.5000  IoU 1.5000  20.0 samples/s"},
	}
	if len(c.places) != len(want) {
		t.Fatalf("%d lines, want %d: %v", len(c.places), len(want), c.text)
	}
	for i, parts := range want {
		for _, p := range parts {
			if line := c.text[c.places[i]]; !strings.Contains(line, p) {
				t.Errorf("line %d is %q, want %q in it", i, line, p)
			}
		}
	}

	s, _ = own(t, "fails", 2)
	if j, err = Local(notebook.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := j.Watch(notebook.Context()); err == nil {
		t.Error("no error")
	}
	if line := c.text[c.places[len(c.places)-1]]; !strings.Contains(line, "1/2") || !strings.HasSuffix(line, "failed") {
		t.Errorf("line is %q, want a failure after epoch 1 of 2", line)
	}
}
