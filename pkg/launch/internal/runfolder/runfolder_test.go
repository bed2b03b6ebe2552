package runfolder

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestStatusOfRankAlone: the status that rank 0 writes may be wrong. It writes "failed" when
// it lost a rank of a canceled run, and "canceled" when it was asked to end after another
// rank's failure. The launcher corrects both.
func TestStatusOfRankAlone(t *testing.T) {
	lost, asked := errors.New("rank 1 has left the group"), fmt.Errorf("ended after step 3: %w", context.Canceled)
	for _, tt := range []struct {
		name         string
		said         string
		why          error
		status, want string
		cause        error
		texts        []string
	}{
		{"interrupted", runs.StatusFailed, lost, runs.StatusCanceled, runs.StatusCanceled, context.Canceled, []string{"context canceled", "rank 0 then reported: rank 1 has left the group"}},
		{"failed", runs.StatusCanceled, asked, runs.StatusFailed, runs.StatusFailed, errors.New("rank 1: exit status 1"), []string{"rank 1: exit status 1"}},
		{"failed by itself", runs.StatusFailed, lost, runs.StatusFailed, runs.StatusFailed, errors.New("rank 0: exit status 1"), []string{"rank 1 has left the group"}},
		{"done", runs.StatusDone, nil, runs.StatusCanceled, runs.StatusDone, context.Canceled, nil},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		w, err := runs.Create(dir, runs.Info{Study: "a", Series: "b", Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Finish(tt.said, tt.why); err != nil {
			t.Fatal(err)
		}
		if err := WriteFinalStatus(dir, tt.status, tt.cause); err != nil {
			t.Fatal(err)
		}
		got, err := runs.Read(dir)
		if err != nil || got.Info.Status != tt.want {
			t.Errorf("%s: status %q, %v, expected %q", tt.name, got.Info.Status, err, tt.want)
		}
		for _, text := range tt.texts {
			if !strings.Contains(got.Info.Error, text) {
				t.Errorf("%s: error %q does not say %q", tt.name, got.Info.Error, text)
			}
		}
	}
}
