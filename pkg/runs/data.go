package runs

import (
	"fmt"
	"strings"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
)

// Data describes the location and the amount of a run's data.
type Data struct {
	Path            string `json:"path,omitempty"`      // of the training data, absolute; empty for generated data and for samples that a program has made
	TestPath        string `json:"test_path,omitempty"` // of separate test data; empty if there are none
	TrainingSamples int    `json:"training_samples,omitempty"`
	HeldOutSamples  int    `json:"held_out_samples,omitempty"`
	Files           int    `json:"files,omitempty"`
	Bytes           int64  `json:"bytes,omitempty"`      // total size of the files, or of samples that a program has made
	NamesHash       string `json:"names_hash,omitempty"` // SHA-256 of the names of the files
}

// DescribeData returns what is known of the worker's data, such as "v1:0123456789ab (20 training
// samples and 2 held-out in 44 files of 123456 bytes, /data/cells)".
func (w Worker) DescribeData() string {
	d := w.Data
	text := fmt.Sprintf("%s and %d held-out", english.FormatCount(d.TrainingSamples, "training sample"), d.HeldOutSamples)
	switch {
	case d.Files > 0:
		text += fmt.Sprintf(" in %s of %d bytes, %s", english.FormatCount(d.Files, "file"), d.Bytes, d.Path)
	case d.Bytes > 0:
		text += ", made by the program"
	case d != Data{}:
		text += ", generated"
	default:
		return clean.EscapeText(ShortHash(w.DataHash))
	}
	if d.TestPath != "" {
		text += " and " + d.TestPath
	}
	return clean.EscapeText(ShortHash(w.DataHash) + " (" + text + ")")
}

// ShortHash returns the version and the first digits of a data fingerprint.
func ShortHash(fingerprint string) string {
	const digits = 12
	version, hash, _ := strings.Cut(fingerprint, ":")
	return version + ":" + hash[:min(digits, len(hash))]
}

// DataChange is a place in a run at which its data changed.
type DataChange struct {
	Before, After Worker // workers with different fingerprints
	// Accepted reports whether the user has accepted the change on resumption. It is false if
	// Before and After are of different ranks, which must have the same data.
	Accepted bool
}

// DataChanges returns the differences between the data of rank 0 and of the other ranks, at the
// start and at the end, and then the changes on resumption. It ignores workers without a
// fingerprint and returns equal changes of several ranks once.
func (r Run) DataChanges() []DataChange {
	var changes []DataChange
	type key struct {
		before, after string
		accepted      bool
	}
	seen := map[key]bool{}
	add := func(before, after Worker, accepted bool) {
		k := key{before.DataHash, after.DataHash, accepted}
		if before.DataHash != after.DataHash && !seen[k] {
			seen[k] = true
			changes = append(changes, DataChange{before, after, accepted})
		}
	}
	byRank := map[int][]Worker{} // those with a fingerprint
	var ranks []int
	for _, w := range r.Starts {
		if w.DataHash == "" {
			continue
		}
		if byRank[w.Rank] == nil {
			ranks = append(ranks, w.Rank)
		}
		byRank[w.Rank] = append(byRank[w.Rank], w)
	}
	for _, rank := range ranks {
		first, own := byRank[ranks[0]], byRank[rank]
		add(first[0], own[0], false)
		add(first[len(first)-1], own[len(own)-1], false)
	}
	for _, rank := range ranks {
		own := byRank[rank]
		for i := 1; i < len(own); i++ {
			add(own[i-1], own[i], own[i].AcceptedChangedData)
		}
	}
	return changes
}

// LastData returns the worker with the data on which the run was last trained. This is the last
// worker with a fingerprint, of the lowest rank that has one. ok is false if no worker has a
// fingerprint.
func (r Run) LastData() (w Worker, ok bool) {
	for _, next := range r.Starts {
		switch {
		case next.DataHash == "":
		case ok && next.Rank != w.Rank:
			return w, true
		default:
			w, ok = next, true
		}
	}
	return w, ok
}
