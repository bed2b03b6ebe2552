// Package ranks lets the ranks of a group agree: they compare values, share a text or an error, and wait for
// work that takes different times on each of them. All ranks of a group must call each function at the same
// point of the program.
package ranks

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/strategy"
)

// ShareRank0Error returns rank 0's error, which may be nil, on every rank.
func ShareRank0Error(ctx context.Context, group collective.Group, err error) error {
	if group.Size() == 1 {
		return err
	}
	root := group.Rank() == 0
	text := ""
	if root && err != nil {
		text = err.Error()
	}
	text, serr := shareRankText(ctx, group, text)
	if serr != nil || root {
		return errors.Join(err, serr)
	}
	if text == "" {
		return nil
	}
	return fmt.Errorf("rank 0: %s", text)
}

// shareRankText returns the text of one rank on every rank. At most one rank may pass a non-empty text.
func shareRankText(ctx context.Context, group collective.Group, text string) (string, error) {
	length := []float64{float64(len(text))}
	if err := strategy.AllReduceFloat64s(ctx, group, length); err != nil || length[0] == 0 {
		return "", err
	}
	// All other ranks add zeros, so the sums are this rank's bytes.
	letters := make([]float64, int(length[0]))
	for i := range len(text) {
		letters[i] = float64(text[i])
	}
	if err := strategy.AllReduceFloat64s(ctx, group, letters); err != nil {
		return "", err
	}
	bytes := make([]byte, len(letters))
	for i, v := range letters {
		bytes[i] = byte(v)
	}
	return string(bytes), nil
}

// HashJSON encodes values as JSON, and returns the hash of the JSON and the JSON itself.
func HashJSON(values map[string]any) ([sha256.Size]byte, []byte, error) {
	text, err := json.Marshal(values) // sorts the keys
	return sha256.Sum256(text), text, err
}

// CheckSameValues returns an error on every rank if the values of any rank differ from those of
// rank 0. values must have the types that json.Unmarshal produces. differs and advice are parts of
// the error message.
func CheckSameValues(ctx context.Context, group collective.Group, differs string, values map[string]any, advice string) error {
	size, rank := group.Size(), group.Rank()
	if size == 1 {
		return nil
	}
	hash, text, err := HashJSON(values)
	if err != nil {
		return err
	}
	const words = sha256.Size / 4
	all := make([]float64, size*words)
	for i := range words {
		all[rank*words+i] = float64(binary.BigEndian.Uint32(hash[4*i:]))
	}
	if err := strategy.AllReduceFloat64s(ctx, group, all); err != nil {
		return fmt.Errorf("compare the ranks' configs: %w", err)
	}
	var others []int
	for r := 1; r < size; r++ {
		if !slices.Equal(all[r*words:(r+1)*words], all[:words]) {
			others = append(others, r)
		}
	}
	if len(others) == 0 {
		return nil
	}
	if rank != others[0] {
		text = nil
	}
	theirs, err := shareRankText(ctx, group, string(text))
	if err != nil {
		return err
	}
	if rank == 0 {
		err = newDifferenceError(others, differs, values, theirs, advice)
	}
	return ShareRank0Error(ctx, group, err)
}

// newDifferenceError returns an error that lists the keys whose values differ between ranks. values
// are those of rank 0. others lists the ranks with different values, and text is the JSON of the
// first of them.
func newDifferenceError(others []int, differs string, values map[string]any, text, advice string) error {
	var theirs map[string]any
	if err := json.Unmarshal([]byte(text), &theirs); err != nil {
		return fmt.Errorf("read config of rank %d: %w", others[0], err)
	}
	shown := func(v any) any {
		if v == nil {
			return "not set"
		}
		return v
	}
	keys := maps.Clone(theirs)
	maps.Copy(keys, values)
	var list []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !reflect.DeepEqual(values[key], theirs[key]) {
			list = append(list, fmt.Sprintf("%s is %v there and %v on rank 0", key, shown(theirs[key]), shown(values[key])))
		}
	}
	first := ""
	if len(others) > 1 {
		first = fmt.Sprintf(" (the first of %d such ranks)", len(others))
	}
	return fmt.Errorf("rank %d%s %s rank 0: %s; %s", others[0], first, differs, strings.Join(list, "; "), advice)
}

// reportInterval is how often ranks report to each other in RunOnAllRanks.
const reportInterval = time.Second

// RunOnAllRanks runs work on every rank and waits for all ranks. work may take longer than the
// time-out of an exchange, so each rank reports to the others until its work has ended. what names
// the work in errors. If work fails on a rank, it is canceled on the others, and every rank gets an
// error.
func RunOnAllRanks(ctx context.Context, group collective.Group, what string, work func(context.Context) error) error {
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	var workErr error
	go func() {
		defer close(ended)
		workErr = work(working)
	}()
	err := waitForAll(ctx, group, what, ended, &workErr)
	if err != nil {
		cancel()
	}
	<-ended
	if workErr != nil && !errors.Is(workErr, context.Canceled) {
		return workErr
	}
	return err
}

// waitForAll waits until ended is closed on every rank. As soon as one rank has failed, it returns
// an error on every rank. When ended is closed, *failure is this rank's error, or nil. what names
// the work in errors.
func waitForAll(ctx context.Context, group collective.Group, what string, ended <-chan struct{}, failure *error) error {
	for {
		var state [2]float64 // number of ranks that have ended, and of ranks that have failed
		select {
		case <-ended:
			state[0] = 1
			if *failure != nil {
				state[1] = 1
			}
		case <-time.After(reportInterval):
		}
		if err := strategy.AllReduceFloat64s(ctx, group, state[:]); err != nil {
			return fmt.Errorf("wait for the data of all ranks: %w", err)
		}
		switch {
		case state[1] > 0:
			return fmt.Errorf("%s: failed on %g of %d ranks, see their error messages", what, state[1], group.Size())
		case state[0] == float64(group.Size()):
			return nil
		}
	}
}
