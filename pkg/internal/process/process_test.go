package process

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStopwatchLeavesStopsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stopwatch
		if got := s.Elapsed(); got != 0 {
			t.Errorf("%v at the start", got)
		}
		for range 8 {
			time.Sleep(checkInterval)
			s.Elapsed()
		}
		time.Sleep(time.Hour) // nobody looked: the process was stopped
		if got, want := s.Elapsed(), 8*checkInterval+maxInterval; got != want {
			t.Errorf("%v after an hour's stop, want %v", got, want)
		}
	})
}

func TestWithTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("too late")
		begin := time.Now()
		ctx, cancel := WithTimeoutCause(context.Background(), 10*time.Second, cause)
		defer cancel()
		<-ctx.Done()
		if d := time.Since(begin); d != 10*time.Second || context.Cause(ctx) != cause {
			t.Errorf("ended after %v with %v, want 10 s and %v", d, context.Cause(ctx), cause)
		}

		ctx, cancel = WithTimeout(context.Background(), time.Second)
		cancel()
		if err := context.Cause(ctx); err != context.Canceled {
			t.Errorf("canceled, but the cause is %v", err)
		}
		parent, end := context.WithCancelCause(context.Background())
		ctx, cancel = WithTimeout(parent, time.Second)
		defer cancel()
		end(cause)
		if err := context.Cause(ctx); err != cause {
			t.Errorf("the parent's cause is %v, want %v", err, cause)
		}
		parent, cancel = WithTimeout(context.Background(), 0)
		defer cancel()
		<-parent.Done()
		if err := context.Cause(parent); err != context.DeadlineExceeded {
			t.Errorf("no time at all ended with %v", err)
		}
	})
}

// TestBootID compares the ID with the file of Linux that contains it, and with "" on other
// systems.
func TestBootID(t *testing.T) {
	want, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		want = nil // not Linux
	}
	if got := BootID(); got != strings.TrimSpace(string(want)) {
		t.Errorf("got %q, want %q", got, want)
	}
}
