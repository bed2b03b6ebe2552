package scaling

import (
	"fmt"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// trainedOn sets the fingerprints of the data of r, with one worker for each.
func trainedOn(r runs.Run, hashes ...string) runs.Run {
	r.Starts = nil
	for _, hash := range hashes {
		r.Starts = append(r.Starts, runs.Worker{WorldSize: 1, DataHash: hash, Data: runs.Data{Path: "/data", Files: 44, Bytes: 12, TrainingSamples: 20, HeldOutSamples: 2}})
	}
	return r
}

// TestDifferentDataIsNoted: a note names both fingerprints if runs of one study were trained on
// different data, and so does a comparison. Runs without a fingerprint, and runs of several
// studies, are not accused.
func TestDifferentDataIsNoted(t *testing.T) {
	run := func(study, series string, seed int64, hashes ...string) runs.Run {
		r := seeds(series, 1, 10)[0]
		r.Info.Study, r.Info.Seed, r.Dir = study, seed, fmt.Sprintf("logs/%s/%s-n1-s%d", study, series, seed)
		return trainedOn(r, hashes...)
	}
	for _, tt := range []struct {
		name string
		all  []runs.Run
		want string // empty: no note
	}{
		{"one", []runs.Run{run("s", "a", 1, "v1:1"), run("s", "b", 1, "v1:1"), run("s", "b", 2)}, ""},
		{"two studies", []runs.Run{run("s", "a", 1, "v1:1"), run("t", "a", 1, "v1:2")}, ""},
		{
			"two series",
			[]runs.Run{run("s", "a", 1, "v1:1"), run("s", "a", 2, "v1:1"), run("s", "b", 1, "v1:2"), run("s", "b", 2)},
			"the runs of s were trained on different data, so their losses, scores and perhaps times cannot be compared: a-n1-s1 and a-n1-s2 on v1:1 (20 training samples and 2 held-out in 44 files of 12 bytes, /data); b-n1-s1 on v1:2 (",
		},
		{"resumed", []runs.Run{run("s", "a", 1, "v1:1", "v1:2")}, "a-n1-s1 on v1:1 (20 training samples and 2 held-out in 44 files of 12 bytes, /data); a-n1-s1 on v1:2 ("},
		{
			"many",
			[]runs.Run{run("s", "a", 1, "v1:1"), run("s", "a", 2, "v1:1"), run("s", "a", 3, "v1:1"), run("s", "a", 4, "v1:1"), run("s", "a", 5, "v1:1", "v1:2", "v1:3", "v1:4", "v1:5", "v1:6")},
			"a-n1-s1, a-n1-s2, a-n1-s3 and 2 more on v1:1 (",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := FromRuns(tt.all)
			check(t, err)
			notes := strings.Join(s.ReadingNotes(), "\n")
			if has := strings.Contains(notes, "different data"); has != (tt.want != "") || !strings.Contains(notes, tt.want) {
				t.Errorf("got notes %q, want %q", notes, tt.want)
			}
			if tt.name == "many" && !strings.HasSuffix(notes, "; the others on 2 more data sets") {
				t.Errorf("got notes %q", notes)
			}
		})
	}
	one, other := study(t, []runs.Run{run("s", "a", 1, "v1:1")}), study(t, []runs.Run{run("t", "a", 1, "v1:2")})
	c, err := CompareStudies(one, other)
	check(t, err)
	wantLine(t, c.Problems, "differ in the content of the data (v1:1 and v1:2), at 1 worker: compare their times with care")
	if c, err = CompareStudies(one, one); err != nil || len(c.Problems) > 0 {
		t.Errorf("the same data: %v, %q", err, c.Problems)
	}
}

// TestMovedDataAreTheSame: of runs that recorded a fingerprint, the path of the data says
// nothing. Of others, it is all that is known.
func TestMovedDataAreTheSame(t *testing.T) {
	all := seeds("a", 1, 10, 10)
	for i := range all {
		all[i].Info.Config = map[string]any{"data": map[string]any{"path": fmt.Sprintf("/data/%d", i), "tile": 64.0}}
	}
	s, err := FromRuns(all)
	check(t, err)
	wantLine(t, s.Notes, "the path of the data differs between runs (/data/0 in ")
	for i := range all {
		all[i] = trainedOn(all[i], "v1:1")
	}
	s, err = FromRuns(all)
	check(t, err)
	if notes := strings.Join(s.Notes, "\n"); strings.Contains(notes, "data") {
		t.Errorf("moved data: got notes %q", notes)
	}
}
