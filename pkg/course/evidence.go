package course

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// answerEvidence contains, by config, the runs with which an answer is compared.
type answerEvidence struct {
	task *Task
	runs map[string][]runs.Run
}

// ownRuns returns the runs that the student trained. It omits published tables.
func (e *answerEvidence) ownRuns() []runs.Run {
	var own []runs.Run
	for _, r := range e.task.Runs {
		if !r.isPublished() {
			own = append(own, e.runs[r.Config]...)
		}
	}
	return own
}

// disturbedNote returns a note that names the runs that other load on the machine slowed down, or ""
// if there are none.
func (e *answerEvidence) disturbedNote() string {
	var names []string
	for _, r := range e.ownRuns() {
		if r.Info.Load != nil && r.Info.Load.Disturbed {
			name := filepath.Base(r.Dir)
			if len(e.task.Runs) > 1 {
				name = filepath.Base(filepath.Dir(r.Dir)) + "/" + name
			}
			names = append(names, name)
		}
	}
	if names == nil {
		return ""
	}
	return "other load on the machine disturbed " + english.JoinAnd(names) + ": to measure again on an idle machine, start the sweep with another Study, and pass that job.Dir()"
}

func readRuns(ctx context.Context, studies []string) ([]runs.Run, error) {
	var all []runs.Run
	for _, study := range studies {
		place, err := runs.LocateLogs(study)
		if err != nil {
			return nil, fmt.Errorf("%w: start the sweep in a cell above, and pass job.Dir()", err)
		}
		read, err := logread.Options{}.Read(ctx, place)
		if err != nil {
			return nil, err
		}
		all = append(all, read.Runs...)
	}
	return all, nil
}

// collectEvidence selects from all, the student's runs, those that the task needs. It returns an
// error if a run is missing, is not finished, or was trained by someone else.
func (t *Task) collectEvidence(ctx context.Context, all []runs.Run) (*answerEvidence, error) {
	e := &answerEvidence{task: t, runs: map[string][]runs.Run{}}
	for _, need := range t.Runs {
		if need.isPublished() {
			table, err := readRuns(ctx, []string{need.Config})
			if err != nil {
				return nil, err
			}
			e.runs[need.Config] = table
			continue
		}
		found, err := t.selectRuns(need, all)
		if err != nil {
			return nil, err
		}
		e.runs[need.Config] = found
	}
	return e, nil
}

func (t *Task) selectRuns(need RequiredRuns, all []runs.Run) ([]runs.Run, error) {
	var found []runs.Run
	var others, unfinished []string
	for _, r := range all {
		switch same, name := matchesConfig(r.Info, need.Config); {
		case !same:
			others = append(others, name)
		case r.Info.Status != runs.StatusDone:
			unfinished = append(unfinished, fmt.Sprintf("%s (%s)", filepath.Base(r.Dir), r.Info.Status))
		default:
			found = append(found, r)
		}
	}
	for _, r := range found {
		if source := describeForeignSource(r); source != "" && !t.Foreign {
			return nil, fmt.Errorf("%s is no run of yours: %s. Train %s here, and pass that sweep's folder", filepath.Base(r.Dir), source, need.Config)
		}
	}
	for _, workers := range need.Workers {
		if slices.ContainsFunc(found, func(r runs.Run) bool { return r.Info.Workers == workers }) {
			continue
		}
		message := fmt.Sprintf("found no finished run of %s with %s", need.Config, english.FormatCount(workers, "worker"))
		switch {
		case unfinished != nil:
			message += "; not finished: " + english.JoinAnd(unfinished) + ". Start the sweep again with Resume: true, and wait for it with job.Watch(ctx)"
		case found == nil && others != nil:
			slices.Sort(others)
			message += "; the runs are of " + english.JoinAnd(slices.Compact(others)) + ". Pass the folder of the sweep of " + need.Config
		default:
			message += ". Run the sweep in a cell above, and pass its folder: job.Dir()"
		}
		return nil, fmt.Errorf("%s", message)
	}
	return found, nil
}

// matchesConfig reports whether a run trained the network of a shipped config. name is the name of
// the run's config.
func matchesConfig(info runs.Info, config string) (same bool, name string) {
	name, _ = info.Config["name"].(string)
	name = cmp.Or(name, info.Study)
	c, err := train.Named(config)
	if err != nil || name != config {
		return false, name
	}
	// A sweep may change the network with Set, and then its runs are of another network.
	var document map[string]any
	text, err := json.Marshal(c)
	if err != nil || json.Unmarshal(text, &document) != nil {
		return false, name
	}
	for _, d := range train.Differences(info.Config, document) {
		if strings.HasPrefix(d.Key, "model.") {
			return false, fmt.Sprintf("%s with %s %v", name, d.Key, d.Was)
		}
	}
	return true, name
}

// RunReference identifies a run that an answer uses, independently of where its folder is.
type RunReference struct {
	Run    string `json:"run"`    // STUDY/RUN
	SHA256 string `json:"sha256"` // of epochs.csv
}

func newRunReference(dir string) (RunReference, error) {
	data, err := os.ReadFile(filepath.Join(dir, "epochs.csv"))
	if err != nil {
		return RunReference{}, err
	}
	sum := sha256.Sum256(data)
	return RunReference{
		Run:    filepath.Base(filepath.Dir(dir)) + "/" + filepath.Base(dir),
		SHA256: hex.EncodeToString(sum[:]),
	}, nil
}

// describeForeignSource describes where a published or recorded run comes from, even if run.json
// does not say so. It returns "" for a run that the student trained.
func describeForeignSource(r runs.Run) string {
	if r.Info.Source != "" {
		return "its numbers are " + r.Info.Source
	}
	return knownEpochTimes()[epochTimesKey(r)]
}

// epochTimesKey returns a key made of the times of the run's epochs. Only copies of the run have the
// same key.
func epochTimesKey(r runs.Run) string {
	var b strings.Builder
	for _, e := range r.Epochs {
		b.WriteString(strconv.FormatFloat(e.Seconds, 'g', 6, 64) + " ")
	}
	return b.String()
}
