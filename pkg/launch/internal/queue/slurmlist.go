package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/wholefile"
)

// The sweeps of this user on Slurm are listed in the folder lockstep/sweeps below $XDG_STATE_HOME
// (default: ~/.local/state), which all login nodes share, one file per sweep. The file names sort
// by the time of the launch.

// slurmListFolder returns the path of the folder lockstep/sweeps, which may not exist.
func slurmListFolder() (string, error) {
	token, err := rendezvous.TokenPath(os.Getenv)
	return filepath.Join(filepath.Dir(token), "sweeps"), err
}

// AddToSlurmList adds the sweep of r to the list of sweeps on Slurm. It removes the oldest ones if
// the list then has more than Kept.
func AddToSlurmList(r *SweepRecord) error {
	folder, err := slurmListFolder()
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	if err != nil {
		return fmt.Errorf("list sweep: %w", err)
	}
	text, err := json.Marshal(Entry{Record: r.Path})
	if err == nil {
		err = wholefile.WriteBytes(filepath.Join(folder, r.ID+".json"), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("list sweep: %w", err)
	}
	names, err := listSlurmFiles(folder)
	for _, name := range names[:max(0, len(names)-Kept)] {
		_ = os.Remove(filepath.Join(folder, name)) // another launch may have removed it
	}
	return err
}

func listSlurmFiles(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list sweeps on Slurm: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// ListSlurmSweeps returns the records of the listed sweeps on Slurm, the oldest first, without deleted studies.
func ListSlurmSweeps() ([]*SweepRecord, error) {
	folder, err := slurmListFolder()
	if err != nil {
		return nil, nil //nolint:nilerr // without a home folder, no sweep can have been submitted
	}
	names, err := listSlurmFiles(folder)
	if err != nil {
		return nil, err
	}
	var all []*SweepRecord
	for _, name := range names {
		var e Entry
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || json.Unmarshal(text, &e) != nil {
			continue // removed in the meantime
		}
		if r, err := ReadRecord(e.Record); err == nil {
			all = append(all, r)
		}
	}
	return all, nil
}
