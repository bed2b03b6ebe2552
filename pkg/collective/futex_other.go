//go:build unix && !linux

package collective

import (
	"context"
	"os"
	"time"
)

// pollTime is how long a rank sleeps between two checks. No other process can wake it
// on this system.
const pollTime = 100 * time.Microsecond

// processNotifier polls.
type processNotifier struct{}

func newProcessNotifier(segment) notifier { return processNotifier{} }

func (processNotifier) sleep(context.Context, int, uint32, time.Duration) { time.Sleep(pollTime) }

func (processNotifier) notify(int) {}

func reserve(f *os.File, n int64) error { return f.Truncate(n) }
