package train

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"lockstep/pkg/data"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/train/internal/ranks"
)

// fingerprintData computes t.dataHash and t.dataRecord if there are other ranks or a run folder to
// use them. All ranks must call it.
func (t *Trainer) fingerprintData(ctx context.Context) (err error) {
	var f data.Fingerprint
	switch {
	case t.group.Size() == 1 && t.options.Dir == "":
		return nil // nothing compares it
	case t.options.Samples != nil:
		f, err = data.FingerprintSamples(ctx, t.samples.Train, t.samples.Test)
	case t.cfg.Data.Path == "": // generated
		f, err = t.samples.Fingerprint(ctx, t.cfg.Data)
	default:
		f, err = t.fingerprintFiles(ctx)
	}
	if err != nil {
		return err
	}
	if f.IsSampled() && t.group.Rank() == 0 {
		t.notes = append(t.notes, fmt.Sprintf("the data have %d bytes: their fingerprint %s covers only a sample of the contents", f.Bytes, runs.ShortHash(f.Hash)))
	}
	t.dataHash = f.Hash
	t.dataRecord = runs.Data{
		TrainingSamples: t.samples.Train.Len(), HeldOutSamples: t.samples.Test.Len(),
		Files: f.Files, Bytes: f.Bytes, NamesHash: f.Names,
	}
	if f.Files > 0 {
		t.dataRecord.Path, t.dataRecord.TestPath = absolutePath(t.cfg.Data.Path), absolutePath(t.cfg.Data.TestPath)
	}
	return nil
}

// slowWorkDelay is how long reading or copying data may take before it is logged.
const slowWorkDelay = 2 * time.Second

// logIfSlow logs line unless stop is called within slowWorkDelay. After stop has returned, line is
// not logged any more.
func (t *Trainer) logIfSlow(line string) (stop func()) {
	log := t.options.Log
	if log == nil {
		return func() {}
	}
	logged := make(chan struct{})
	timer := time.AfterFunc(slowWorkDelay, func() {
		defer close(logged)
		log(line)
	})
	return func() {
		if !timer.Stop() {
			<-logged
		}
	}
}

// fingerprintFiles returns the fingerprint of data in files. The first rank of each machine reads
// the files; the other ranks find the result in the user's cache, or read the files if there is no
// cache.
func (t *Trainer) fingerprintFiles(ctx context.Context) (f data.Fingerprint, err error) {
	defer t.logIfSlow("reading all files of the data, for their fingerprint; the next run finds it in the user's cache folder")()
	for _, first := range []bool{true, false} {
		err := ranks.RunOnAllRanks(ctx, t.group, "fingerprint data", func(ctx context.Context) (err error) {
			if (t.options.LocalRank == 0) == first {
				f, err = t.samples.Fingerprint(ctx, t.cfg.Data)
			}
			return err
		})
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// checkSameData returns an error on every rank if any rank's data, apart from their paths, differ
// from rank 0's. All ranks must call it.
func (t *Trainer) checkSameData(ctx context.Context) error {
	return ranks.CheckSameValues(ctx, t.group, "has other data than", map[string]any{
		"training samples": float64(t.samples.Train.Len()), "held-out samples": float64(t.samples.Test.Len()),
		"files": float64(t.dataRecord.Files), "bytes": float64(t.dataRecord.Bytes), "fingerprint": t.dataHash,
	}, "give all workers the same data")
}

// absolutePath makes path absolute. It returns path unchanged if it is empty or if the working
// directory is unknown.
func absolutePath(path string) string {
	if abs, err := filepath.Abs(path); err == nil && path != "" {
		return abs
	}
	return path
}

// checkDataUnchanged returns an error if before, the run to be resumed, was last trained on other
// data, unless WorkerOptions.AcceptChangedData is set. All ranks read the same run folder, so all
// end with the same error.
func (t *Trainer) checkDataUnchanged(before runs.Run) error {
	last, known := before.LastData()
	now := runs.Worker{DataHash: t.dataHash, Data: t.dataRecord}
	switch {
	case !known:
		t.notes = append(t.notes, fmt.Sprintf("the run has no fingerprint of the data that it was trained on: check that the data are the same; from now on it is recorded: %s", now.DescribeData()))
		return nil
	case last.DataHash == now.DataHash:
		return nil
	}
	differs := fmt.Sprintf("fingerprint was %s, is %s: %s", last.DescribeData(), now.DescribeData(), describeDataDifference(last.Data, now.Data))
	if now.Data.Files > 0 {
		if changed := t.samples.ChangedSince(t.cfg.Data, last.Started); len(changed) > 0 {
			differs += ", and since then these files were written or renamed: " + english.JoinFirstFew(changed)
		}
	}
	if t.options.AcceptChangedData {
		t.acceptedData = true
		t.notes = append(t.notes, "the run continues with other data, as --accept-changed-data allows: "+differs)
		return nil
	}
	return fmt.Errorf("resume %s: the data have changed since the run was trained: %s; restore the data (data.path, --data), train in another run folder, or continue with the changed data with --accept-changed-data (AcceptChangedData), which is recorded",
		t.options.Dir, differs)
}

// describeDataDifference describes how data with different fingerprints differ.
func describeDataDifference(before, after runs.Data) string {
	switch {
	case before == runs.Data{}:
		return "the run folder does not say which data it was"
	case (before.Files == 0) != (after.Files == 0):
		return "only one of them was read from files"
	case before.Files == 0 && before.Bytes == 0:
		return "the settings of the generator differ"
	case before.Files != after.Files:
		return fmt.Sprintf("%d files more or fewer", max(before.Files-after.Files, after.Files-before.Files))
	case before.NamesHash != after.NamesHash:
		return "as many files, but other names or classes"
	case before.Bytes != after.Bytes:
		return "the same names of files, but other sizes"
	case before.Files > 0:
		return "the same names and the same total size of files, but other contents"
	}
	return "other samples"
}
