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

// IsRunFile reports whether name is a file that this package writes to run folders. Workers' logs
// are not; see WorkerLogRank.
func IsRunFile(name string) bool {
	switch name {
	case infoFile, epochsFile, classesFile, imagesFile, loadFileName, logFile, OwnersFile:
		return true
	}
	_, isSteps := parseRankBetween(name, "steps-", ".jsonl")
	_, isRecord := parseRankBetween(name, "collectives-", ".jsonl")
	_, isStacks := parseRankBetween(name, "stacks-", ".txt")
	_, isUsage := parseRankBetween(name, "usage-", ".csv")
	return isSteps || isRecord || isStacks || isUsage
}

// IsRunFolder reports whether dir contains a run.json, or an epochs.csv with this package's columns.
func IsRunFolder(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, infoFile)); err == nil {
		return true
	}
	return hasRunEpochs(dir)
}

// hasRunEpochs reports whether the header of dir's epochs.csv has the first columns of this
// package. Other programs write files of this name too.
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

// WorkerLogName returns the name of the file to which the launcher writes a worker's output.
func WorkerLogName(rank int) string { return fmt.Sprintf("worker-%d.log", rank) }

// WorkerLogRank returns the rank in a name that WorkerLogName returns. ok is false for other names.
func WorkerLogRank(name string) (rank int, ok bool) { return parseRankBetween(name, "worker-", ".log") }

// parseRankBetween returns the rank between prefix and suffix. ok is false for another form or leading zeros.
func parseRankBetween(name, prefix, suffix string) (rank int, ok bool) {
	text, hasPrefix := strings.CutPrefix(name, prefix)
	text, hasSuffix := strings.CutSuffix(text, suffix)
	rank, err := strconv.Atoi(text)
	if !hasPrefix || !hasSuffix || err != nil || rank < 0 || strconv.Itoa(rank) != text {
		return 0, false
	}
	return rank, true
}
