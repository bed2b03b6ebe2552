package runs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"lockstep/pkg/internal/safeopen"
)

// IsRunFile reports whether name is the name of a file that this package writes to run
// folders. The logs of the workers are not among these files; see WorkerLogRank.
func IsRunFile(name string) bool {
	switch name {
	case infoFile, epochsFile, classesFile, imagesFile, loadFileName, logFile, OwnersFile:
		return true
	}
	_, isSteps := cutRank(name, "steps-", ".jsonl")
	_, isRecord := cutRank(name, "collectives-", ".jsonl")
	_, isStacks := cutRank(name, "stacks-", ".txt")
	_, isUsage := cutRank(name, "usage-", ".csv")
	return isSteps || isRecord || isStacks || isUsage
}

// IsRunFolder reports whether dir contains a run.json, or an epochs.csv with the columns of
// this package although run.json is missing.
func IsRunFolder(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, infoFile)); err == nil {
		return true
	}
	return hasRunEpochs(dir)
}

// hasRunEpochs reports whether dir contains an epochs.csv whose header has the first columns
// of this package. Other programs write files of this name too.
func hasRunEpochs(dir string) bool {
	const first = "epoch,seconds,samples,"
	f, err := safeopen.Open(dir, filepath.Join(dir, epochsFile))
	if err != nil {
		return false
	}
	head := make([]byte, len(first))
	n, _ := f.Read(head) // an empty or unreadable file has no header
	return f.Close() == nil && bytes.Equal(head[:n], []byte(first))
}

// WorkerLogName returns the name of the file in a run folder to which the launcher writes the
// output of the worker with the given rank.
func WorkerLogName(rank int) string { return fmt.Sprintf("worker-%d.log", rank) }

// WorkerLogRank returns the rank of the worker whose output is in the file with the given
// name. ok is false if WorkerLogName does not return that name for any rank.
func WorkerLogRank(name string) (rank int, ok bool) { return cutRank(name, "worker-", ".log") }

// cutRank returns the rank between prefix and suffix in name. ok is false if name has another
// form or the rank has leading zeros.
func cutRank(name, prefix, suffix string) (rank int, ok bool) {
	text, hasPrefix := strings.CutPrefix(name, prefix)
	text, hasSuffix := strings.CutSuffix(text, suffix)
	rank, err := strconv.Atoi(text)
	if !hasPrefix || !hasSuffix || err != nil || rank < 0 || strconv.Itoa(rank) != text {
		return 0, false
	}
	return rank, true
}
