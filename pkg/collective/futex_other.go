//go:build unix && !linux

package collective

import (
	"context"
	"os"
	"time"
)

// pollTime is a rank's sleep where no other process can wake it.
const pollTime = 100 * time.Microsecond

// processBell looks again and again.
type processBell struct{}

func newProcessBell(segment) bell { return processBell{} }

func (processBell) sleep(context.Context, int, uint32, time.Duration) { time.Sleep(pollTime) }

func (processBell) ring(int) {}

func reserve(f *os.File, n int64) error { return f.Truncate(n) }
