// Package checkpoint reads and writes the checkpoints of a run folder, and manages their files.
package checkpoint

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

// ErrNoCheckpoint is wrapped by the error of ListCheckedPaths if the newest checkpoint is missing.
var ErrNoCheckpoint = errors.New("no checkpoint")

// FolderName is the name of the folder, within a run folder, that contains the checkpoints.
const FolderName = "checkpoints"

// Suffixes appended to the names of checkpoints that are set aside when a run is started or
// resumed. Lockstep neither reads nor deletes such files.
const (
	DamagedSuffix  = ".damaged"
	OtherRunSuffix = ".other-run" // the checkpoint was in the folder before the run was started
)

// SavePoint is the point of a run at which a checkpoint was saved.
type SavePoint struct {
	Epochs int // complete epochs
	Steps  int // complete steps of the next epoch; 0 at the end of an epoch
}

// Path returns the path of the checkpoint relative to the run folder.
func (p SavePoint) Path() string {
	name := fmt.Sprintf("epoch-%04d.safetensors", p.Epochs)
	if p.Steps > 0 {
		name = fmt.Sprintf("epoch-%04d-step-%06d.safetensors", p.Epochs+1, p.Steps)
	}
	return filepath.Join(FolderName, name)
}

// compare returns a negative number if p is before q, and 0 if they are equal.
func (p SavePoint) compare(q SavePoint) int {
	return cmp.Or(cmp.Compare(p.Epochs, q.Epochs), cmp.Compare(p.Steps, q.Steps))
}

// namePattern matches a checkpoint's file name. Its groups are the epoch and, for a checkpoint
// within an epoch, the step.
var namePattern = regexp.MustCompile(`^epoch-(\d+)(?:-step-(\d+))?\.safetensors$`)

// ParsePath is the inverse of Path. ok is false for names that Path does not return.
func ParsePath(path string) (p SavePoint, ok bool) {
	m := namePattern.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return p, false
	}
	p.Epochs, _ = strconv.Atoi(m[1]) // a number that is too large is not equal to its name below
	if m[2] != "" {
		p.Steps, _ = strconv.Atoi(m[2])
		p.Epochs--
	}
	return p, filepath.Base(p.Path()) == filepath.Base(path)
}

// ListPaths returns the paths of the checkpoints in the run folder dir, relative to dir, oldest first.
// It ignores files whose name Lockstep would not write.
func ListPaths(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, FolderName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if _, ok := ParsePath(e.Name()); ok {
			found = append(found, filepath.Join(FolderName, e.Name()))
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		p, _ := ParsePath(a)
		q, _ := ParsePath(b)
		return p.compare(q)
	})
	return found, nil
}

// LastEpoch returns the largest epoch number in the rows of a run, or 0 if there are no rows.
func LastEpoch(rows []runs.Epoch) int {
	last := 0
	for _, e := range rows {
		last = max(last, e.Epoch)
	}
	return last
}

// LastSavePoint returns the save point of the newest checkpoint that the run is known to have
// saved, or the zero SavePoint. If run.json does not record it, it is derived from the rows of
// epochs: each row was written after the checkpoints of all earlier epochs. every is the number of
// epochs between two checkpoints in the run's config, or 0 if unknown.
func LastSavePoint(run runs.Run, every int) SavePoint {
	last, _ := ParsePath(run.Info.Checkpoint)
	if run.Info.Checkpoint != "" {
		return last
	}
	if test := run.Info.Test; test != nil {
		last, _ = ParsePath(test.Checkpoint)
	}
	if every > 0 {
		before := LastEpoch(run.Epochs) - 1
		last.Epochs = max(last.Epochs, before-before%every)
	}
	return last
}

// ListCheckedPaths is like List, but checks the checkpoints. It returns an error that wraps
// ErrNoCheckpoint if the newest one according to LastSavePoint is missing. It also returns an error
// if there is a checkpoint that the run cannot have saved.
func ListCheckedPaths(run runs.Run, every int) ([]string, error) {
	all, err := ListPaths(run.Dir)
	if err != nil {
		return nil, err
	}
	saved, newest := LastSavePoint(run, every), SavePoint{}
	if len(all) > 0 {
		newest, _ = ParsePath(all[len(all)-1])
	}
	if last := LastEpoch(run.Epochs); newest.Epochs > last && newest.compare(saved) > 0 {
		return nil, fmt.Errorf("%s is not of this run, whose record ends with epoch %d: move the file out of the folder; if rows of epochs.csv were lost, restore them from a copy",
			filepath.Join(run.Dir, newest.Path()), last)
	}
	if newest.compare(saved) >= 0 || len(all) > 0 && hasDamagedCopy(run.Dir, saved) {
		return all, nil
	}
	advice := "restore it from a copy, or train again in another run folder"
	if len(all) > 0 {
		advice = fmt.Sprintf("restore it from a copy; if there is none, create an empty file of that name, and --resume continues from %s", filepath.Base(newest.Path()))
	}
	return all, &missingCheckpointError{path: filepath.Join(run.Dir, saved.Path()), epochs: LastEpoch(run.Epochs), advice: advice}
}

type missingCheckpointError struct {
	path   string // of the checkpoint
	epochs int    // in the record of the run
	advice string
}

func (e *missingCheckpointError) Error() string {
	return fmt.Sprintf("%s is missing, the newest checkpoint of a run that has recorded %s: %s", e.path, english.FormatCount(e.epochs, "epoch"), e.advice)
}

func (e *missingCheckpointError) Is(target error) bool { return target == ErrNoCheckpoint }

// hasDamagedCopy reports whether the checkpoint of save point p was damaged and has been renamed.
// This happens if a resumed run ended before it recorded the checkpoint that it continued from.
func hasDamagedCopy(dir string, p SavePoint) bool {
	_, err := os.Lstat(filepath.Join(dir, p.Path()) + DamagedSuffix)
	return err == nil
}

// DeleteOld deletes old checkpoints in the run folder dir. It keeps the newest keep end-of-epoch
// checkpoints, or all of them if keep is 0. It keeps a checkpoint within an epoch while it is one
// of the two newest, because the newest may be damaged. After that epoch, it deletes the checkpoint
// if there is an end-of-epoch checkpoint of an earlier epoch.
//
// A checkpoint newer than saved, the one just saved, does not belong to this run. It is neither counted nor
// deleted.
func DeleteOld(dir, saved string, keep int) error {
	all, err := ListPaths(dir)
	if err != nil {
		return err
	}
	all = all[:slices.Index(all, saved)+1]
	within := func(name string) bool {
		p, _ := ParsePath(name)
		return p.Steps > 0
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
	if keep > 0 && len(whole) > keep {
		drop = append(drop, whole[:len(whole)-keep]...)
	}
	for _, name := range drop {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// RenameDamaged appends DamagedSuffix to the names of the damaged checkpoints, and returns a note
// for each. saved is the checkpoint from which the run continues.
func RenameDamaged(damaged []*weights.DamagedError, saved string) (notes []string, err error) {
	for _, d := range damaged {
		if err := os.Rename(d.Path, d.Path+DamagedSuffix); err != nil {
			return notes, fmt.Errorf("rename damaged checkpoint: %w", err)
		}
		notes = append(notes, fmt.Sprintf("checkpoint %s is damaged (%v); it is kept as %s, and the run continues from %s",
			filepath.Base(d.Path), d.Err, filepath.Base(d.Path)+DamagedSuffix, filepath.Base(saved)))
	}
	return notes, nil
}

// RenameFromOtherRuns appends OtherRunSuffix to the names of all checkpoints in the run folder dir,
// and returns a note for each. The run of dir must not have begun, so that they belong to other
// runs.
func RenameFromOtherRuns(dir string) (notes []string, err error) {
	all, err := ListPaths(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		path := filepath.Join(dir, name)
		to := path + OtherRunSuffix
		for i := 2; ; i++ {
			if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
				break
			}
			to = fmt.Sprintf("%s%s-%d", path, OtherRunSuffix, i)
		}
		if err := os.Rename(path, to); err != nil {
			return notes, fmt.Errorf("rename checkpoint of another run: %w", err)
		}
		notes = append(notes, fmt.Sprintf("checkpoint %s was in the folder before this run began; it is kept as %s and not used", filepath.Base(path), filepath.Base(to)))
	}
	return notes, nil
}

// ownerFile is the name of a file that contains the path of a run folder. It is in a folder of
// checkpoints outside of the run folder, to which the run folder has a link.
const ownerFile = "run-folder.txt"

// maxOwnerFileBytes limits how much of an ownerFile is read into memory.
const maxOwnerFileBytes = 1 << 16

// ClaimFolder returns an error if another run already uses the checkpoint folder of the run folder
// dir. This is possible if the checkpoint folder is a link.
func ClaimFolder(ctx context.Context, dir string) error {
	own, err := filepath.EvalSymlinks(dir)
	if err == nil {
		own, err = filepath.Abs(own)
	}
	if err != nil {
		return err
	}
	link := filepath.Join(dir, FolderName)
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
	if err != nil || folder == filepath.Join(own, FolderName) {
		return err
	}
	path := filepath.Join(folder, ownerFile)
	text, err := safeopen.ReadUserFile(ctx, path, maxOwnerFileBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	recorded := strings.TrimSpace(string(text))
	for _, other := range []string{filepath.Dir(folder), recorded} {
		theirs, err := filepath.EvalSymlinks(filepath.Join(other, FolderName))
		if _, ierr := runs.ReadInfo(other); err == nil && ierr == nil && theirs == folder && other != own {
			return fmt.Errorf("runs %s and %s have the same folder of checkpoints, %s: give each run a folder of its own", other, dir, folder)
		}
	}
	if recorded == own {
		return nil
	}
	return wholefile.WriteBytes(path, []byte(own+"\n"), 0o644)
}
