// Package flight reads and explains the records of collective operations that the ranks of a
// run leave in its folder when an operation fails, like an aircraft's flight recorder:
//
//	collectives-<rank>.jsonl   a Header, then one Call per line: the rank's last operations
//	stacks-<rank>.txt          the stacks of the rank's goroutines at that time
//
// A rank that was killed or stopped leaves no record, but the others' records show which
// operation it never entered. A rank that is only slow writes its record when another one asks it.
package flight

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/wholefile"
)

// MaxCalls is the number of most recent operations that a record contains.
const MaxCalls = 1000

// Header is the first line of a record.
type Header struct {
	Rank      int       `json:"rank"`
	World     int       `json:"world"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Transport string    `json:"transport"`
	Written   time.Time `json:"written"`
	// Error is the error of the failed operation, or empty if SIGUSR2 asked for the record.
	Error string `json:"error,omitempty"`
	// Stack contains the innermost functions of the training goroutine, the current one first, such
	// as "train.(*Trainer).trainBatch (loop.go:370)". StacksName(Rank) has all.
	Stack []string `json:"stack,omitempty"`
	// Lost describes the rank that Error names, or is nil if this rank could not examine it.
	Lost *Lost `json:"lost,omitempty"`
}

// Lost states why there is no stack of a rank.
type Lost struct {
	Rank   int    `json:"rank"`
	Reason string `json:"reason"` // such as "its process is stopped (state T)"
}

// Call is a call of a collective operation, or a message between two ranks.
type Call struct {
	// Number counts the collective operations from 1, equally on all ranks. It is 0 for a message
	// between two ranks.
	Number   uint64    `json:"number,omitempty"`
	Kind     string    `json:"kind"` // such as "all-reduce"
	Elements int       `json:"elements"`
	Bits     int       `json:"bits,omitempty"` // of an element: 32 or 64; 0 without elements
	Peer     int       `json:"peer,omitempty"` // root of a broadcast, or the other rank of a message
	Step     int       `json:"step,omitempty"` // optimizer step, from 1; 0: between steps
	Bucket   *int      `json:"bucket,omitempty"`
	Begin    time.Time `json:"begin"`
	End      time.Time `json:"end,omitzero"` // zero if the operation had not ended
	Failed   bool      `json:"failed,omitempty"`
}

// Record is the content of one rank's record file.
type Record struct {
	Header
	Calls []Call // in the order in which they began
}

// FileName returns the name of the record of a rank.
func FileName(rank int) string { return "collectives-" + strconv.Itoa(rank) + ".jsonl" }

// Write writes the record of a rank to the run folder dir, in place of an earlier one.
func Write(dir string, r Record) error {
	return wholefile.Write(filepath.Join(dir, FileName(r.Rank)), 0o644, func(f *os.File) error {
		w := bufio.NewWriter(f)
		e := json.NewEncoder(w)
		if err := e.Encode(r.Header); err != nil {
			return err
		}
		for _, c := range r.Calls {
			if err := e.Encode(c); err != nil {
				return err
			}
		}
		return w.Flush()
	})
}

// Remove removes the record and the stacks of a rank from the run folder dir, if there are any.
func Remove(dir string, rank int) error {
	for _, name := range []string{FileName(rank), StacksName(rank)} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Limits for records that are read, because run folders may come from anywhere.
const (
	maxLines     = MaxCalls + 1
	maxLineBytes = 64 << 10
	maxWorld     = 1 << 20 // as in package rendezvous
)

// ReadFile reads the record in the file name of the run folder dir.
func ReadFile(dir, name string) (r Record, err error) {
	path := filepath.Join(dir, name)
	f, err := safeopen.Open(dir, path)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLineBytes)
	for n := 1; lines.Scan(); n++ {
		if n > maxLines {
			return r, fmt.Errorf("read %s: more than %d lines", path, maxLines)
		}
		var c Call
		var into any = &c
		if n == 1 {
			into = &r.Header
		}
		if err := json.Unmarshal(lines.Bytes(), into); err != nil {
			return r, fmt.Errorf("read %s:%d: %w", path, n, err)
		}
		if n > 1 {
			r.Calls = append(r.Calls, c)
		}
	}
	if err := lines.Err(); err != nil {
		return r, fmt.Errorf("read %s: %w", path, err)
	}
	if r.World < 1 || r.World > maxWorld || r.Rank < 0 || r.Rank >= r.World {
		return r, fmt.Errorf("read %s: invalid rank %d of %d", path, r.Rank, r.World)
	}
	return r, nil
}
