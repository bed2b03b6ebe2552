package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/runs"
	"lockstep/pkg/weights"
)

const checkpointDir = "checkpoints"

// Suffixes for checkpoints set aside when a run is started or resumed. Lockstep neither reads nor
// deletes such files.
const (
	damagedSuffix  = ".damaged"
	otherRunSuffix = ".other-run" // the checkpoint was in the folder before the run was started
)

// checkpointPlace is the point of a run at which a checkpoint was saved.
type checkpointPlace struct {
	epochs int // complete epochs
	steps  int // complete steps of the next epoch; 0 at the end of an epoch
}

// path returns the path of the checkpoint relative to the run folder.
func (p checkpointPlace) path() string {
	name := fmt.Sprintf("epoch-%04d.safetensors", p.epochs)
	if p.steps > 0 {
		name = fmt.Sprintf("epoch-%04d-step-%06d.safetensors", p.epochs+1, p.steps)
	}
	return filepath.Join(checkpointDir, name)
}

// compare returns a negative number if p is before q, and 0 if they are equal.
func (p checkpointPlace) compare(q checkpointPlace) int {
	return cmp.Or(cmp.Compare(p.epochs, q.epochs), cmp.Compare(p.steps, q.steps))
}

// checkpointNamePattern has two groups: the epoch, and the step if the checkpoint is within an epoch.
var checkpointNamePattern = regexp.MustCompile(`^epoch-(\d+)(?:-step-(\d+))?\.safetensors$`)

// parseCheckpointPath is the inverse of path. ok is false for names that path does not return.
func parseCheckpointPath(path string) (p checkpointPlace, ok bool) {
	m := checkpointNamePattern.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return p, false
	}
	p.epochs, _ = strconv.Atoi(m[1]) // a number that is too large is not equal to its name below
	if m[2] != "" {
		p.steps, _ = strconv.Atoi(m[2])
		p.epochs--
	}
	return p, filepath.Base(p.path()) == filepath.Base(path)
}

// listCheckpoints returns the paths of the checkpoints in the run folder dir, relative to dir,
// oldest first. It omits files whose name Lockstep does not write.
func listCheckpoints(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, checkpointDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if _, ok := parseCheckpointPath(e.Name()); ok {
			found = append(found, filepath.Join(checkpointDir, e.Name()))
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		p, _ := parseCheckpointPath(a)
		q, _ := parseCheckpointPath(b)
		return p.compare(q)
	})
	return found, nil
}

// deleteOldCheckpoints deletes all end-of-epoch checkpoints but the newest Checkpoint.Keep ones, or
// none of them if Keep is 0. It keeps a checkpoint within an epoch while it is one of the two
// newest, because the newest may be damaged. After that epoch, it deletes the checkpoint if there
// is an end-of-epoch checkpoint of an earlier epoch.
//
// A checkpoint newer than the one just saved does not belong to this run. It is neither counted nor
// deleted.
func (t *Trainer) deleteOldCheckpoints() error {
	all, err := listCheckpoints(t.options.Dir)
	if err != nil {
		return err
	}
	all = all[:slices.Index(all, t.saved)+1]
	within := func(name string) bool {
		p, _ := parseCheckpointPath(name)
		return p.steps > 0
	}
	var drop, whole []string
	for i, name := range all {
		switch after := all[i+1:]; {
		case !within(name):
			whole = append(whole, name)
		case len(after) > 1, len(after) == 1 && !within(after[0]) && len(whole) > 0:
			drop = append(drop, name)
		}
	}
	if keep := t.cfg.Checkpoint.Keep; keep > 0 && len(whole) > keep {
		drop = append(drop, whole[:len(whole)-keep]...)
	}
	for _, name := range drop {
		if err := os.Remove(filepath.Join(t.options.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// lastSaved returns the place of the newest checkpoint that the run is known to have saved, or the
// zero place. If run.json does not record it, as in the recorded runs, it follows from the rows of
// epochs: each was written after the checkpoints of all earlier epochs.
func lastSaved(run runs.Run) checkpointPlace {
	last, _ := parseCheckpointPath(run.Info.Checkpoint)
	if run.Info.Checkpoint != "" {
		return last
	}
	if test := run.Info.Test; test != nil {
		last, _ = parseCheckpointPath(test.Checkpoint)
	}
	if c, err := ConfigOf(run.Info); err == nil && c.Checkpoint.Every > 0 {
		before := lastEpoch(run.Epochs) - 1
		last.epochs = max(last.epochs, before-before%c.Checkpoint.Every)
	}
	return last
}

// listRunCheckpoints returns what listCheckpoints does. It returns an error if the newest
// checkpoint is missing (an ErrNoCheckpoint), or if there is one that the run cannot have saved.
func listRunCheckpoints(run runs.Run) ([]string, error) {
	all, err := listCheckpoints(run.Dir)
	if err != nil {
		return nil, err
	}
	saved, newest := lastSaved(run), checkpointPlace{}
	if len(all) > 0 {
		newest, _ = parseCheckpointPath(all[len(all)-1])
	}
	if last := lastEpoch(run.Epochs); newest.epochs > last && newest.compare(saved) > 0 {
		return nil, fmt.Errorf("%s is not of this run, whose record ends with epoch %d: move the file out of the folder; if rows of epochs.csv were lost, restore them from a copy",
			filepath.Join(run.Dir, newest.path()), last)
	}
	if newest.compare(saved) >= 0 || len(all) > 0 && isSetAside(run.Dir, saved) {
		return all, nil
	}
	advice := "restore it from a copy, or train again in another run folder"
	if len(all) > 0 {
		advice = fmt.Sprintf("restore it from a copy; if there is none, create an empty file of that name, and --resume continues from %s", filepath.Base(newest.path()))
	}
	return all, &missingCheckpointError{path: filepath.Join(run.Dir, saved.path()), epochs: lastEpoch(run.Epochs), advice: advice}
}

type missingCheckpointError struct {
	path   string // of the checkpoint
	epochs int    // in the record of the run
	advice string
}

func (e *missingCheckpointError) Error() string {
	return fmt.Sprintf("%s is missing, the newest checkpoint of a run that has recorded %s: %s", e.path, english.Count(e.epochs, "epoch"), e.advice)
}

func (e *missingCheckpointError) Is(target error) bool { return target == ErrNoCheckpoint }

// isSetAside reports whether the checkpoint of place p was damaged and renamed, by a resumed run
// that was ended before it recorded the checkpoint from which it continued.
func isSetAside(dir string, p checkpointPlace) bool {
	_, err := os.Lstat(filepath.Join(dir, p.path()) + damagedSuffix)
	return err == nil
}

// checkRecord returns an error if a file that the run wrote before it saved c is missing, because a
// resumed run would replace it by a shorter one.
func (t *Trainer) checkRecord(c checkpoint) error {
	var names []string
	if c.epoch > 0 {
		names = append(names, "epochs.csv")
		if c.untrained != nil && c.untrained.Classes != nil {
			names = append(names, "classes.csv")
		}
	}
	if c.step > 0 {
		for rank := range t.group.Size() {
			names = append(names, fmt.Sprintf("steps-%d.jsonl", rank))
		}
	}
	for _, name := range names {
		path := filepath.Join(t.options.Dir, name)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("resume %s: %s is missing, although the run has a checkpoint of step %d: restore the file from a copy; if there is none, create an empty file of that name to continue without its lines",
				t.options.Dir, path, c.step)
		}
	}
	return nil
}

// renameDamaged appends damagedSuffix to the damaged checkpoints on rank 0, and adds a note for the
// logs for each.
func (t *Trainer) renameDamaged(damaged []*weights.DamagedError) error {
	if t.group.Rank() != 0 {
		return nil
	}
	for _, d := range damaged {
		if err := os.Rename(d.Path, d.Path+damagedSuffix); err != nil {
			return fmt.Errorf("resume %s: rename damaged checkpoint: %w", t.options.Dir, err)
		}
		t.notes = append(t.notes, fmt.Sprintf("checkpoint %s is damaged (%v); it is kept as %s, and the run continues from %s",
			filepath.Base(d.Path), d.Err, filepath.Base(d.Path)+damagedSuffix, filepath.Base(t.saved)))
	}
	return nil
}

// renameCheckpointsOfOthers appends otherRunSuffix to the checkpoints that are in the folder of a
// run that has not begun, and adds a note for the logs for each. Only rank 0 calls it.
func (t *Trainer) renameCheckpointsOfOthers() error {
	all, err := listCheckpoints(t.options.Dir)
	if err != nil {
		return err
	}
	for _, name := range all {
		path := filepath.Join(t.options.Dir, name)
		to := path + otherRunSuffix
		for i := 2; ; i++ {
			if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
				break
			}
			to = fmt.Sprintf("%s%s-%d", path, otherRunSuffix, i)
		}
		if err := os.Rename(path, to); err != nil {
			return fmt.Errorf("rename checkpoint of another run: %w", err)
		}
		t.notes = append(t.notes, fmt.Sprintf("checkpoint %s was in the folder before this run began; it is kept as %s and not used", filepath.Base(path), filepath.Base(to)))
	}
	return nil
}

// checkpointOwnerFile is a file in a folder of checkpoints to which a run folder has a link. It
// contains the path of the run folder.
const checkpointOwnerFile = "run-folder.txt"

// maxOwnerFileBytes limits what is read into memory of a checkpointOwnerFile.
const maxOwnerFileBytes = 1 << 16

// claimCheckpoints returns an error if another run has the same folder of checkpoints, which is
// possible if checkpoints is a link. Only rank 0 calls it.
func (t *Trainer) claimCheckpoints(ctx context.Context) error {
	own, err := filepath.EvalSymlinks(t.options.Dir)
	if err == nil {
		own, err = filepath.Abs(own)
	}
	if err != nil {
		return err
	}
	link := filepath.Join(t.options.Dir, checkpointDir)
	folder, err := filepath.EvalSymlinks(link)
	if errors.Is(err, fs.ErrNotExist) {
		if to, err := os.Readlink(link); err == nil {
			return fmt.Errorf("%s is a link to %s, which does not exist: create that folder, or remove the link", link, to)
		}
		return nil
	}
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	if err != nil || folder == filepath.Join(own, checkpointDir) {
		return err
	}
	ownerFile := filepath.Join(folder, checkpointOwnerFile)
	text, err := safeopen.ReadUserFile(ctx, ownerFile, maxOwnerFileBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	recorded := strings.TrimSpace(string(text))
	for _, other := range []string{filepath.Dir(folder), recorded} {
		theirs, err := filepath.EvalSymlinks(filepath.Join(other, checkpointDir))
		if _, ierr := runs.ReadInfo(other); err == nil && ierr == nil && theirs == folder && other != own {
			return fmt.Errorf("runs %s and %s have the same folder of checkpoints, %s: give each run a folder of its own", other, t.options.Dir, folder)
		}
	}
	if recorded == own {
		return nil
	}
	return wholefile.WriteBytes(ownerFile, []byte(own+"\n"), 0o644)
}
