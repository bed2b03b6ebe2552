package notebook

import (
	"context"
	"testing"
)

func TestGo(t *testing.T) {
	done := make(chan string, 1)
	Go(func() { done <- "terminal" })
	if got := <-done; got != "terminal" {
		t.Errorf("Go ran %q", got)
	}
	// Inside a kernel, the kernel runs it.
	hooked := false
	SetHook(Hook{
		Context: context.Background,
		Display: func(any, string, bool) error { return nil },
		Go:      func(f func()) { hooked = true; f() },
	})
	defer SetHook(Hook{})
	Go(func() { done <- "kernel" })
	if got := <-done; got != "kernel" || !hooked {
		t.Errorf("Go ran %q, by the kernel %v", got, hooked)
	}
	SetHook(Hook{Context: context.Background, Display: func(any, string, bool) error { return nil }})
	Go(func() { done <- "older hook" })
	if got := <-done; got != "older hook" {
		t.Errorf("Go ran %q", got)
	}
}
