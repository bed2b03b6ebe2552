package session

import (
	"errors"
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

func TestInterruptCancelsAndANewCellIsFresh(t *testing.T) {
	s := New()
	var hits atomic.Int32
	s.Begin(func() { hits.Add(1) })
	first := s.Context()
	if first.Err() != nil {
		t.Fatal("a new cell's context is cancelled")
	}
	s.Interrupt()
	if first.Err() == nil || hits.Load() != 1 {
		t.Errorf("after an interrupt the context has error %v and the cell was told %d times", first.Err(), hits.Load())
	}
	if s.Context() != first {
		t.Error("the interrupted cell finds another context before its end")
	}
	if !s.Interrupted() || !s.End() {
		t.Error("End does not say that the cell was interrupted")
	}
	s.Begin(func() {})
	if s.Interrupted() || s.Context().Err() != nil {
		t.Error("the cell after an interrupt finds a cancelled context")
	}
	if s.End() {
		t.Error("End says that the second cell was interrupted")
	}
}

func TestContextLivesOnBehindTheCell(t *testing.T) {
	s := New()
	s.Begin(func() {})
	ctx := s.Context()
	s.End()
	s.Begin(func() {})
	if s.Context() != ctx || ctx.Err() != nil {
		t.Error("the end of a cell takes its context away")
	}
	s.End()
	s.Interrupt() // with no cell running it still ends what was left behind
	if ctx.Err() == nil {
		t.Error("an interrupt between two cells cancels nothing")
	}
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
	time.Sleep(again + 100*time.Millisecond)
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
	cell, why := s.Cell(), errors.New("why")
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
