// Package runfolder creates and completes the folder of a run for the launcher, and reads it again
// while another process writes it.
package runfolder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"lockstep/pkg/runs"
)

// MakeDir creates the folder dir and its parents if necessary.
func MakeDir(dir string) error { return WrapWriteError("create folder", os.MkdirAll(dir, 0o755)) }

// WrapWriteError adds the action that failed to err, unless it is nil. If the folder cannot be
// written to, the result also says how to choose another folder.
func WrapWriteError(action string, err error) error {
	for _, cause := range []error{fs.ErrPermission, unix.EROFS, unix.ENOTDIR} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%s: %w; choose a folder that you may write (Logs, --logs, or LOCKSTEP_LOGS)", action, err)
		}
	}
	for _, cause := range []error{unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%s: %w; delete files that you no longer need, or choose a folder on another disk (Logs, --logs, or LOCKSTEP_LOGS)", action, err)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// WriteFinalStatus writes the final status and its cause to run.json in the run folder dir if rank 0
// has not done so, or if rank 0 could not know the cause:
//   - rank 0 wrote "canceled", because it was asked to end, but another rank had failed; or
//   - rank 0 wrote "failed", because it lost a rank, but the run was canceled.
func WriteFinalStatus(dir, status string, cause error) error {
	err := runs.RemoveTemporary(dir)
	var owned *runs.OwnedError
	if errors.As(err, &owned) {
		return nil // another process owns the run and writes its status
	}
	if err != nil {
		return err
	}
	before, err := runs.Read(dir)
	if err != nil {
		return nil // the run never started
	}
	otherRankFailed := before.Info.Status == runs.StatusCanceled && status == runs.StatusFailed
	wasCanceled := before.Info.Status == runs.StatusFailed && status == runs.StatusCanceled
	switch {
	case wasCanceled:
		cause = fmt.Errorf("%w; rank 0 then reported: %s", cause, before.Info.Error)
	case before.Info.Status != runs.StatusRunning && before.Info.Status != runs.StatusKilled && !otherRankFailed:
		return nil // rank 0 has written it
	}
	w, _, err := runs.Resume(dir)
	if err != nil {
		return err
	}
	return w.Finish(status, cause)
}

// StatusForError returns the final status of a run that ended with the error err, as in run.json.
func StatusForError(err error) string {
	switch {
	case err == nil:
		return runs.StatusDone
	case errors.Is(err, context.Canceled):
		return runs.StatusCanceled
	}
	return runs.StatusFailed
}
