package scaling

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/runs"
)

// TestFollow appends epochs to a run. The existing epochs are shown at once, and each new
// epoch after it was written, by the rule of the followed study.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	source := weak(1, 1, 20, 10, 12)
	w, err := runs.Create(filepath.Join(dir, "ddp-n1-s1"), source.Info)
	check(t, err)
	for _, e := range source.Epochs[:2] {
		check(t, w.AppendEpoch(e))
	}
	s, err := Read(dir)
	check(t, err)
	s, err = s.WithRule(Rule{Repeats: Mean})
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	shown := 0
	check(t, s.Follow(ctx, func(now *Study) error {
		shown++
		p := now.Points[0]
		if now.Rule != s.Rule || p.Epochs != shown+1 {
			t.Errorf("shown %d times: %d epochs by the rule %v", shown, p.Epochs, now.Rule)
		}
		if shown == 2 {
			near(t, "mean of all epochs", p.EpochSeconds.Value, 14)
			cancel()
			return nil
		}
		return w.AppendEpoch(source.Epochs[2])
	}))
	if shown != 2 {
		t.Errorf("shown %d times", shown)
	}
	check(t, w.Finish(runs.StatusDone, nil))

	stop := errors.New("seen enough")
	if err := Follow(t.Context(), func(*Study) error { return stop }, dir); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	for _, err := range []error{study(t, seeds("ddp", 1, 10)).Follow(ctx, nil), Follow(ctx, nil)} {
		if err == nil || !strings.Contains(err.Error(), "follow study") {
			t.Errorf("error %v", err)
		}
	}
}

// TestFollowOnly checks that the series that Only chose are the ones that Follow shows.
func TestFollowOnly(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ddp", "horovod"} {
		r := weak(1, 1, 20, 10)
		r.Info.Series = name
		w, err := runs.Create(filepath.Join(dir, name+"-n1-s1"), r.Info)
		check(t, err)
		for _, e := range r.Epochs {
			check(t, w.AppendEpoch(e))
		}
		check(t, w.Finish(runs.StatusDone, nil))
	}
	s, err := Read(dir)
	check(t, err)
	s, err = s.Only("horovod")
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	shown := 0
	check(t, s.Follow(ctx, func(now *Study) error {
		shown++
		if names := now.Series(); !slices.Equal(names, []string{"horovod"}) {
			t.Errorf("shown: %q", names)
		}
		cancel()
		return nil
	}))
	if shown != 1 {
		t.Errorf("shown %d times", shown)
	}
}
