package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/logread"
	"lockstep/pkg/notebook"
)

// epochLine is the shell command that prints what the SC21 scripts print after an epoch.
const epochLine = `print() { echo "2021-11-12 00:3$1:26,118 - root - INFO - Time taken for epoch $1 is $2 sec, avg $3 samples/sec"
echo "2021-11-12 00:3$1:27,118 - root - INFO -   Avg train loss=$4"; }
`

// TestWatchShowsTheEpochsOfAnotherProgram checks that the epochs are shown while the program
// runs: the program waits until the test has seen its first epoch.
func TestWatchShowsTheEpochsOfAnotherProgram(t *testing.T) {
	c := &cell{text: map[string]string{}}
	notebook.SetHook(notebook.Hook{Context: context.Background, Display: c.display})
	defer notebook.SetHook(notebook.Hook{})
	seen := filepath.Join(t.TempDir(), "seen")
	s, _ := shell(t, fmt.Sprintf(`[ $RANK = 1 ] && exit 0
echo "reading the data"
echo "Epoch 1 took 10.5s (200.25 img/s, loss 0.75)"
while [ ! -e %s ]; do sleep 0.02; done
echo "Epoch 2 took 9.5s (221 img/s, loss 0.5)"`, seen), 2)
	s.Lines = []string{"Epoch {epoch} took {seconds}s ({samples_per_second} img/s, loss {train_loss})"}
	p, err := planSweep(t.Context(), OnLocal, "", s, false)
	if err != nil {
		t.Fatal(err)
	}
	job, err := p.start(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	watched := make(chan error, 1)
	go func() { watched <- job.Watch(t.Context()) }()
	shown := func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.places) == 0 {
			return ""
		}
		return c.text[c.places[0]]
	}
	first := regexp.MustCompile(`script-n2-s1 +2 +running +1 +200\.2 +0\.7500`)
	for deadline := time.Now().Add(20 * time.Second); !first.MatchString(shown()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("Watch shows %q, want %q", shown(), first)
			break
		}
	}
	if err := os.WriteFile(seen, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-watched; err != nil {
		t.Fatal(err)
	}
	if table := shown(); !regexp.MustCompile(`script-n2-s1 +2 +done +2 +221\.0 +0\.5000`).MatchString(table) {
		t.Errorf("at the end, Watch shows %q", table)
	}
	st := job.Status()[0]
	if st.Epoch != 2 || st.Last.Epoch != 2 || st.Last.Seconds != 9.5 {
		t.Errorf("status %+v", st)
	}
	attached, err := Attach(job.Dir()) // as another process does
	if err != nil {
		t.Fatal(err)
	}
	if st := attached.Status()[0]; st.Epoch != 2 || st.Last.Seconds != 9.5 {
		t.Errorf("status of the attached job %+v", st)
	}
}

// TestStudyLogsOfAnotherProgram checks that the study log has the epochs of the program's
// log.
func TestStudyLogsOfAnotherProgram(t *testing.T) {
	s, _ := shell(t, epochLine+`print 1 10.5 200.25 0.75; print 2 9.5 221 0.5`, 1)
	s.StudyLogs = DefaultStudyLogs
	j, err := launch(t, s)
	if err != nil {
		t.Fatal(err)
	}
	want := ",time_per_epoch,loss,lr,training_time,test_time,iou\n0,10.500000,0.750000,,20.000000,,\n1,9.500000,0.500000,,20.000000,,\n"
	if got := file(t, j.Dir(), "study-logs", "log_1.csv"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	all, _, err := logread.Read(j.Dir())
	if err != nil || len(all) != 1 || len(all[0].Epochs) != 2 {
		t.Errorf("%v: read %+v", err, all)
	}
}

// TestLinesAreKept checks that the templates of lines are in the study's folder before the
// runs start, and that they need a command.
func TestLinesAreKept(t *testing.T) {
	s, _ := shell(t, `cat "$LOCKSTEP_RUN/../`+logread.RulesFile+`"`, 1)
	s.Lines = []string{"epoch {epoch}: {seconds}s"}
	j, err := launch(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if text := file(t, j.Dir(), "script-n1-s1", "worker-0.log"); !strings.Contains(text, s.Lines[0]) {
		t.Errorf("the program saw %q", text)
	}
	s.Lines = []string{"step {step}: {train_loss}"} // for runs that are done
	if _, err := launch(t, s); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"epoch {epoch}: {seconds}s", "step {step}: {train_loss}"} {
		if text := file(t, j.Dir(), logread.RulesFile); strings.Count(text, line) != 1 {
			t.Errorf("%q is not once in\n%s", line, text)
		}
	}
	s.Lines = []string{"epoch {epoch"}
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "epoch {epoch") {
		t.Errorf("an invalid template: %v", err)
	}
	s.Lines = []string{"epoch {epoch}"}
	own, _ := own(t, "sums", 1)
	own.Lines = s.Lines
	if _, err := Local(t.Context(), own); err == nil || !strings.Contains(err.Error(), "describe what another program prints") {
		t.Errorf("lines of a config: %v", err)
	}
	if _, err := os.Stat(filepath.Join(own.Logs, "sums", logread.RulesFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was written: %v", logread.RulesFile, err)
	}
}
