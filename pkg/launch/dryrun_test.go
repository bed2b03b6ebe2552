package launch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listFiles returns the paths of all files and folders in dir.
func listFiles(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

// TestLocalDryRun: the runs are described, and nothing is started or written.
func TestLocalDryRun(t *testing.T) {
	s, _ := own(t, "sums", 1, 2)
	dir := filepath.Join(s.Logs, "sums")
	check := func(wants ...string) {
		t.Helper()
		before := listFiles(t, s.Logs)
		text, err := dryRun(t, OnLocal, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("got\n%s\nwant %q", text, want)
			}
		}
		if after := listFiles(t, s.Logs); after != before {
			t.Errorf("the logs folder has\n%s\nwant\n%s", after, before)
		}
	}
	check("# ddp-n2-s1: would start 2 workers, 1 thread each, in "+dir+"/ddp-n2-s1\n",
		"LOCKSTEP_RUN="+dir+"/ddp-n2-s1 LOCKSTEP_SEED=1 RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=PORT ",
		" train --config sums --seed 1 --threads 1 --run "+dir+"/ddp-n2-s1", "# and rank 1, with other values of RANK and LOCAL_RANK\n")
	if _, err := launch(t, s); err != nil {
		t.Fatal(err)
	}
	s.Workers = []int{1, 2, 3}
	check("# ddp-n1-s1 is done: nothing to run\n", "# ddp-n2-s1 is done", "# ddp-n3-s1: would start 3 workers", "# and ranks 1-2, with")
	s.Config, s.Study, s.Workers = "fails", "", []int{2}
	if _, err := launch(t, s); err == nil {
		t.Fatal("the run did not fail")
	}
	_, err := dryRun(t, OnLocal, s)
	wantError(t, err, "already contains an unfinished run")
	s.Resume = true
	check("# ddp-n2-s1: would continue 2 workers", " --resume\n")
	s.AcceptChangedData = true
	check("# ddp-n2-s1: would continue 2 workers", " --resume --accept-changed-data\n")
	s.Resume = false
	_, err = dryRun(t, OnLocal, s)
	wantError(t, err, "AcceptChangedData (--accept-changed-data) needs Resume (--resume)")
	s.Workers, s.AcceptChangedData = nil, false
	_, err = dryRun(t, OnLocal, s)
	wantError(t, err, "no workers")
}

// TestDryRunBehindAnother: a dry run says which sweep the sweep would wait for.
func TestDryRunBehindAnother(t *testing.T) {
	first, out := own(t, "waits", 1)
	j, err := Local(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	out.await(t, "epoch 1 mean", 1)
	s, _ := own(t, "sums", 1)
	describe := func(s Sweep) string {
		text, err := dryRun(t, OnLocal, s)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if text, want := describe(s), "# waits is running (pid "; !strings.HasPrefix(text, want) || !strings.Contains(text, "): this sweep would wait for its end, unless --now (Now) is given\n") {
		t.Errorf("got\n%s\nwant that it would wait", text)
	}
	now := s
	now.Now = true
	if text := describe(now); strings.Contains(text, "would wait") {
		t.Errorf("with --now: got\n%s", text)
	}
	s.NoWait = true
	if text := describe(s); !strings.Contains(text, "): this sweep would not start, unless --now (Now) is given\n") {
		t.Errorf("with --no-wait: got\n%s", text)
	}
	if err := j.Cancel(); err != nil {
		t.Fatal(err)
	}
	_ = j.Wait(t.Context())
	if text := describe(s); strings.Contains(text, "is running") {
		t.Errorf("after its end: got\n%s", text)
	}
}

// TestDryRunOfStudyLoop: on each back end, a dry run shows the batch of each run of a study.
func TestDryRunOfStudyLoop(t *testing.T) {
	s, _ := newStudy(t, "{16*workers}", 1, 2, 4, 6, 8, 10, 12, 14)
	text, err := dryRun(t, OnLocal, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" 16 1\n# script-n1-s1: would then write its study log to " + s.Logs + "/scripts/study-logs\n", " 224 1\n# and ranks 1-13, with"} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q", text, want)
		}
	}
	forEachMPI(t, func(t *testing.T, command string) {
		s := s
		s.MPI.Command = command
		text, err := dryRun(t, OnMPI, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"MASTER_ADDR=127.0.0.1 MASTER_PORT=PORT LOCKSTEP_TOKEN=SECRET ", command, " -n 14 ", " 224 1\n# script-n14-s1: would then write"} {
			if !strings.Contains(text, want) {
				t.Errorf("got\n%s\nwant %q", text, want)
			}
		}
	})
}

// TestLinkedRunFolders: a run folder may be a link, but two runs of a sweep must not have the
// same folder.
func TestLinkedRunFolders(t *testing.T) {
	root := t.TempDir()
	scratch := filepath.Join(root, "scratch")
	first, second := PlannedRun{Name: "ddp-n1-s1", Dir: filepath.Join(root, "ddp-n1-s1")}, PlannedRun{Name: "ddp-n1-s2", Dir: filepath.Join(root, "ddp-n1-s2")}
	if err := errors.Join(os.Mkdir(scratch, 0o755), os.Symlink(scratch, first.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := checkSeparateFolders([]PlannedRun{first, second}); err != nil { // the second one is new
		t.Error(err)
	}
	if err := os.Symlink(first.Dir, second.Dir); err != nil {
		t.Fatal(err)
	}
	wantError(t, checkSeparateFolders([]PlannedRun{first, second}), "runs "+first.Dir+" and "+second.Dir+" have the same folder, ")
}

// dryRun returns the text of the plan of s.
func dryRun(t *testing.T, on string, s Sweep) (string, error) {
	t.Helper()
	p, err := Plan(t.Context(), on, s)
	if err != nil {
		return "", err
	}
	return p.String(), nil
}
