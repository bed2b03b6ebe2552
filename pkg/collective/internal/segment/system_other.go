//go:build unix && !linux

package segment

import (
	"context"
	"os"
	"time"
)

// pollInterval is how long a rank sleeps between two checks, because no other process can
// wake it on this system.
const pollInterval = 100 * time.Microsecond

// processNotifier is a Notifier for ranks that are processes. They poll.
type processNotifier struct{}

// NewProcessNotifier returns the notifier of ranks that are processes.
func NewProcessNotifier(Segment) Notifier { return processNotifier{} }

// Sleep implements Notifier.
func (processNotifier) Sleep(context.Context, int, uint32, time.Duration) { time.Sleep(pollInterval) }

// Notify implements Notifier.
func (processNotifier) Notify(int) {}

func newMemoryFile(dir string) (*os.File, error) { return newNamedFile(dir) }

// hasName reports whether a file has a name in its folder and must be removed.
func hasName(*os.File) bool { return true }

func allocateFile(f *os.File, n int64) error { return f.Truncate(n) }

// Liveness reports every rank as alive, because this system has no locks that belong to
// an open file.
type Liveness struct{}

// LockRankByte returns a Liveness without a lock.
func LockRankByte(*os.File, int) (Liveness, error) { return Liveness{}, nil }

// IsAlive returns true.
func (Liveness) IsAlive(int) bool { return true }

// Close does nothing.
func (Liveness) Close() error { return nil }
