package server

import "testing"

// TestCoordinator: who may read and who may update, step by step. The limit is 2.
func TestCoordinator(t *testing.T) {
	c := newCoordinator(4, 2, 10)
	ctx := t.Context()
	read := func(worker int, want bool) {
		t.Helper()
		if v, ok := c.checkOutVersion(ctx, 0, worker); ok != want || ok && v != c.version {
			t.Errorf("worker %d reads: %v, version %d, want %v, version %d", worker, ok, v, want, c.version)
		}
	}
	update := func(worker int, want bool, staleness int) {
		t.Helper()
		if u, s, ok := c.admitUpdate(ctx, 0, worker); ok != want || ok && (u != c.version || s != staleness) {
			t.Errorf("worker %d updates: %v, update %d, staleness %d, want %v, %d, %d", worker, ok, u, s, want, c.version, staleness)
		}
	}
	read(0, true)
	read(1, true)
	read(2, true)
	read(3, false) // the fourth could become 3 updates old
	update(2, true, 0)
	read(3, true)
	update(3, false, 0) // the other two would then be 2 and 3 updates old
	update(1, true, 1)
	update(3, false, 0) // worker 0 must be next
	update(0, true, 2)
	update(3, true, 2)
	if v := c.version; v != 14 {
		t.Errorf("version %d after 4 updates from 10", v)
	}
}
