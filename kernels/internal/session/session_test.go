package session

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// wait polls until ok, for 10 seconds at most.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 s for %s", what)
		}
	}
}

func TestInterruptCancelsTheContextOfItsCell(t *testing.T) {
	s := New()
	kept := s.Context() // before any cell
	var hits atomic.Int32
	s.Begin(func() { hits.Add(1) })
	if kept.Err() != nil {
		t.Fatal("a new cell's context is canceled")
	}
	done := kept.Done()
	s.Interrupt()
	if kept.Err() == nil || hits.Load() != 1 {
		t.Errorf("after an interrupt the context has error %v and the cell was told %d times", kept.Err(), hits.Load())
	}
	select {
	case <-done:
	default:
		t.Error("a call that waits for the context is not woken")
	}
	if s.Context().Err() == nil {
		t.Error("the interrupted cell finds a live context before its end")
	}
	if !s.Interrupted() || !s.End() {
		t.Error("End does not say that the cell was interrupted")
	}
	s.Begin(func() {})
	if s.Interrupted() || kept.Err() != nil || s.Context().Err() != nil {
		t.Error("the cell after an interrupt finds a canceled context")
	}
	select {
	case <-kept.Done():
		t.Error("a kept context is done in the next cell")
	default:
	}
	s.Interrupt()
	if kept.Err() == nil {
		t.Error("a kept context does not notice the interrupt of a later cell")
	}
	s.End()
}

// TestInterruptReachesNoOtherCell: what an earlier cell derived and left running
// goes on, and what this cell derives from a kept context ends.
func TestInterruptReachesNoOtherCell(t *testing.T) {
	s := New()
	kept := s.Context()
	derive := func() context.Context {
		ctx, cancel := context.WithTimeout(context.WithValue(kept, testKey{}, 1), time.Hour)
		t.Cleanup(cancel)
		return ctx
	}
	s.Begin(func() {})
	background := derive()
	s.End()
	s.Begin(func() {})
	foreground := derive()
	s.Interrupt()
	wait(t, "the derived context", func() bool { return foreground.Err() != nil })
	if background.Err() != nil {
		t.Error("an interrupt cancels what an earlier cell started")
	}
	s.End()
	s.Interrupt() // no cell runs
	s.Begin(func() {})
	if background.Err() != nil || kept.Err() != nil || derive().Err() != nil {
		t.Error("an interrupt between two cells cancels something")
	}
	if foreground.Err() == nil {
		t.Error("what was canceled is alive again")
	}
	s.End()
}

// TestKeptContextInGoroutines is for the race detector: goroutines derive from
// the context while cells begin, are interrupted and end.
func TestKeptContextInGoroutines(t *testing.T) {
	s := New()
	kept := s.Context()
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !stop.Load() {
				if kept.Err() == nil {
					ctx, cancel := context.WithCancel(kept)
					_ = ctx.Err()
					cancel()
				}
			}
		})
	}
	for range 200 {
		s.Begin(func() {})
		s.End()
	}
	stop.Store(true)
	all.Wait()
}

func TestInterruptInsists(t *testing.T) {
	s := New()
	s.SlowAfter = 10 * time.Millisecond
	var hits, slow atomic.Int32
	s.Slow = func() { slow.Add(1) }
	s.Begin(func() { hits.Add(1) })
	s.Interrupt()
	wait(t, "a second call of the cell's interrupt", func() bool { return hits.Load() >= 2 })
	if slow.Load() != 1 {
		t.Errorf("Slow was called %d times, want once", slow.Load())
	}
	s.End()
	n := hits.Load()
	time.Sleep(interruptRepeatInterval + 100*time.Millisecond)
	if hits.Load() > n+1 { // one may have been on its way
		t.Errorf("the cell was told %d times after its end", hits.Load()-n)
	}
}

func TestSleepEndsEarly(t *testing.T) {
	s := New()
	s.Begin(func() {})
	begin := time.Now()
	s.Sleep(time.Millisecond)
	if time.Since(begin) < time.Millisecond {
		t.Error("an undisturbed sleep is too short")
	}
	time.AfterFunc(10*time.Millisecond, s.Interrupt)
	s.Sleep(time.Hour)
	if !s.End() {
		t.Error("the sleeping cell was not interrupted")
	}
}

func TestFailStopsItsCellAlone(t *testing.T) {
	s := New()
	stopped := 0
	s.Begin(func() { stopped++ })
	cell, why := s.CellNumber(), errors.New("why")
	if !s.Fail(cell, why) || !s.Interrupted() || s.Cause() != why || s.Context().Err() == nil || stopped == 0 {
		t.Errorf("a failed cell: interrupted %v, cause %v, stopped %d times", s.Interrupted(), s.Cause(), stopped)
	}
	if !s.End() {
		t.Error("the end of a failed cell does not say so")
	}
	if s.Fail(cell, why) {
		t.Error("a cell that has ended fails")
	}
	s.Begin(func() { t.Error("another cell is stopped") })
	if s.Fail(cell, why) || s.Cause() != nil || s.Interrupted() {
		t.Error("the failure of one cell reaches the next")
	}
	s.End()
}

func TestSecondInterruptIsTold(t *testing.T) {
	s := New()
	told := 0
	s.Again = func() { told++ }
	s.Begin(func() {})
	s.Interrupt()
	if told != 0 {
		t.Error("the first interrupt counts as a second")
	}
	s.Interrupt()
	s.End()
	s.Interrupt()
	if told != 1 {
		t.Errorf("told %d times, want once", told)
	}
}

// testKey is the key of a value in a derived context.
type testKey struct{}
