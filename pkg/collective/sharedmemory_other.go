//go:build unix && !linux

package collective

import (
	"context"
	"os"
	"time"
)

// pollInterval is how long a rank sleeps between two checks, because no other process can
// wake it on this system.
const pollInterval = 100 * time.Microsecond

// processNotifier is a notifier for ranks that are processes. They poll.
type processNotifier struct{}

func newProcessNotifier(segment) notifier { return processNotifier{} }

func (processNotifier) sleep(context.Context, int, uint32, time.Duration) { time.Sleep(pollInterval) }

func (processNotifier) notify(int) {}

func newMemoryFile(dir string) (*os.File, error) { return newNamedFile(dir) }

// hasName reports whether a file has a name in its folder and must be removed.
func hasName(*os.File) bool { return true }

func allocateFile(f *os.File, n int64) error { return f.Truncate(n) }

// liveness reports every rank as alive, because this system has no locks that belong to
// an open file.
type liveness struct{}

func lockRankByte(*os.File, int) (liveness, error) { return liveness{}, nil }
func (liveness) isAlive(int) bool                  { return true }
func (liveness) Close() error                      { return nil }
