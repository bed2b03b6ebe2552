package merge

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/events"
	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/pattern"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Each rank of a run may write a file: rank0.log to rank3.log, or stdout.log in torchrun's folders
// attempt_0/0 to attempt_0/3. Each node may write a file with the lines of its ranks: ranks
// 0 and 1 in node0.log, ranks 2 and 3 in node1.log.

// RankFile is a file whose path contains a number that may be a rank or a node.
type RankFile struct {
	Part   *record.Part
	Rank   int         // the number
	Path   string      // the path without the number and the word before it
	Origin runs.Origin // the user, or the name with the number replaced by *
	key    string      // the path with the number replaced by *
}

// GroupRankFiles groups the parts whose paths differ only in one number, and sorts each group by
// this number. If ofNodes is set, the numbers are nodes and the lines of each file have several
// ranks; otherwise the numbers are ranks. matches contains the matches of the user's patterns. If
// files have several runs, the n-th runs of all files form a group.
func GroupRankFiles(parts []*record.Part, matches map[*record.Part]pattern.Match, ofNodes bool) (groups [][]RankFile) {
	index := map[string]int{}
	nth := map[string]int{}
	for _, p := range parts {
		nth[p.Run.File]++
		m, matched := matches[p]
		matched = matched && m.Rank >= 0
		var files []RankFile
		switch {
		case ofNodes && (matched || len(p.Ranks) < 2):
		case ofNodes:
			files = findNodeFiles(filepath.ToSlash(p.Run.File))
		case matched:
			files = []RankFile{{Rank: m.Rank, key: m.Rest, Origin: runs.Origin{Source: runs.SourceUser}}}
		default:
			files = findRankFiles(p)
		}
		for _, f := range files {
			f.Part = p
			key := fmt.Sprint(f.key, "\x00", nth[p.Run.File])
			i, ok := index[key]
			if !ok {
				i = len(groups)
				index[key], groups = i, append(groups, nil)
			}
			groups[i] = append(groups[i], f)
		}
	}
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b RankFile) int {
			if ofNodes {
				return cmp.Compare(a.Part.Ranks[0], b.Part.Ranks[0])
			}
			return cmp.Compare(a.Rank, b.Rank)
		})
	}
	return groups
}

// findRankFiles returns the innermost number in the path of p's file that may be a rank, or nil.
func findRankFiles(p *record.Part) []RankFile {
	path := filepath.ToSlash(p.Run.File)
	if p.Role == record.Companion { // the names of event files contain the time, the host and the process
		if !events.IsEventPart(p) {
			return nil // a trace states its rank
		}
		path = filepath.ToSlash(filepath.Join(filepath.Dir(path), "events"))
	}
	if f, ok := parseTorchrunPath(path); ok {
		return []RankFile{f}
	}
	elements := strings.Split(path, "/")
	for i := len(elements) - 1; i >= 0 && i >= len(elements)-1-names.MaxParsedFolders; i-- {
		n := names.ParseFolder(elements[i])
		if i == len(elements)-1 {
			n = names.ParsePath(path)[0]
		}
		if n.Number >= 0 {
			with := func(text string) string {
				return strings.Join(slices.Concat(elements[:i], []string{text}, elements[i+1:]), "/")
			}
			return []RankFile{{
				Rank: n.Number, Origin: runs.Origin{Source: n.Source, Detail: n.Text[:n.At] + "*" + n.Text[n.End:]},
				key: with(elements[i][:n.At] + "*" + elements[i][n.End:]), Path: filepath.Clean(with(elements[i][:n.WordAt] + elements[i][n.End:])),
			}}
		}
	}
	return nil
}

// parseTorchrunPath returns the rank in a path such as logs/none_k3x9a_1q/attempt_0/3/stdout.log, to
// which torchrun --log-dir logs writes the output of local rank 3. The first folder is the name of
// the run, none by default, and eight random characters.
func parseTorchrunPath(path string) (RankFile, bool) {
	const randomLength = 8
	elements := strings.Split(path, "/")
	n := len(elements)
	if n < 3 || !strings.HasPrefix(elements[n-3], "attempt_") {
		return RankFile{}, false
	}
	rank, err := strconv.Atoi(elements[n-2])
	if err != nil || rank < 0 {
		return RankFile{}, false
	}
	above := slices.Clone(elements[:n-3])
	f := RankFile{Rank: rank, Origin: runs.Origin{Source: runs.SourceFolderName, Detail: elements[n-3] + "/*"}}
	f.key = strings.Join(slices.Concat(above, []string{elements[n-3], "*", elements[n-1]}), "/")
	if k := len(above) - 1; k >= 0 {
		if at := len(above[k]) - randomLength - 1; at > 0 && above[k][at] == '_' {
			above[k] = above[k][:at]
		}
		if above[k] == "none" {
			above[k] = ""
		}
	}
	f.Path = filepath.Clean(strings.Join(append(above, elements[n-1]), "/"))
	return f, true
}

// nodeNumber matches a number in a path, and a word for nodes or ranks before it.
var nodeNumber = regexp.MustCompile(`(?i)((node|host|task|rank|worker|gpu)[-_]*)?[0-9]+`)

func findNodeFiles(path string) (found []RankFile) {
	first := len(path) // offset of the names that are searched
	for range names.MaxParsedFolders + 1 {
		first = max(strings.LastIndexByte(path[:first], '/'), 0)
	}
	for _, m := range nodeNumber.FindAllStringIndex(path[first:], -1) {
		before, after := path[:first+m[0]], path[first+m[1]:]
		found = append(found, RankFile{key: before + "*" + after, Path: filepath.Clean(before + after)})
	}
	return found
}

// DescribeRanks returns a text such as "rank 1", "ranks 2 and 3", or "ranks 8 to 15" for
// consecutive ranks. It lists at most eight.
func DescribeRanks(ranks []int) string {
	const most = 8
	n := len(ranks)
	if n > 2 && ranks[n-1]-ranks[0] == n-1 {
		return fmt.Sprintf("ranks %d to %d", ranks[0], ranks[n-1])
	}
	words := strings.Fields(strings.Trim(fmt.Sprint(ranks[:min(n, most)]), "[]"))
	if n > most {
		words = append(words, fmt.Sprintf("%d more", n-most))
	}
	return strings.TrimSuffix("ranks", strings.Repeat("s", max(0, 2-n))) + " " + english.JoinAnd(words)
}

// JoinRankFiles merges the parts of all ranks of a run into the first part. ranks[i] is the rank of
// files[i], or its first rank if it has several. Curves without a rank get the rank of their file.
func JoinRankFiles(files []RankFile, ranks []int) {
	first := files[0].Part
	reportDifferingRates(files)
	by := make([][]runs.Epoch, len(files))
	measured := -1 // index of the first file with epochs
	for i, f := range files {
		p := f.Part
		if by[i] = p.Run.Epochs; measured < 0 && len(by[i]) > 0 {
			measured = i
		}
		for k := range p.Run.Curves {
			if c := &p.Run.Curves[k]; c.Rank < 0 {
				c.Rank = ranks[i]
			}
		}
		if i == 0 {
			continue
		}
		info, other := &first.Run.Info, p.Run.Info
		if !other.Started.IsZero() && other.Started.Before(info.Started) {
			info.Started = other.Started
		}
		if other.Ended.After(info.Ended) {
			info.Ended = other.Ended
		}
		first.Run.WallSeconds = max(first.Run.WallSeconds, p.Run.WallSeconds)
		first.Run.OutOfMemory = append(slices.Clip(first.Run.OutOfMemory), p.Run.OutOfMemory...)
		rest := *p
		rest.Run.Epochs = nil // merged below
		FillMissingPartValues(first, &rest)
	}
	if measured > 0 {
		first.Run.File, first.Run.Kind = files[measured].Part.Run.File, files[measured].Part.Run.Kind
	}
	if measured >= 0 {
		first.Run.Epochs = record.MergeEpochs(by, first.SumRates, first.Report)
	}
}

// reportDifferingRates adds a problem to the first part if the ranks logged different throughputs
// for an epoch. Each value may then be the throughput of one rank or of all workers.
// record.MergeEpochs keeps the value of the first rank.
func reportDifferingRates(files []RankFile) {
	first := files[0].Part
	for _, e := range first.Run.Epochs {
		for _, f := range files[1:] {
			i := slices.IndexFunc(f.Part.Run.Epochs, func(o runs.Epoch) bool { return o.Epoch == e.Epoch })
			if first.SumRates || i < 0 {
				continue
			}
			if v := f.Part.Run.Epochs[i].SamplesPerSecond; e.SamplesPerSecond != v && e.SamplesPerSecond > 0 && v > 0 {
				first.Report.AddProblem(0, "the ranks logged different throughputs (%g and %g samples/s in epoch %d); that of the first rank is taken as the throughput of all workers", e.SamplesPerSecond, v, e.Epoch)
				return
			}
		}
	}
}
