package merge

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/identity"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Each node of a run may write a file with the lines of its ranks: ranks 0 and 1 in node0.log,
// ranks 2 and 3 in node1.log. These files are one run if their names differ only in one number and
// their ranks complement each other.

// joinNodes merges the parts of the files of the nodes of one run, and returns the merged parts
// and the others.
func (m *merger) joinNodes(parts []*record.Part) []*record.Part {
	type key struct {
		path string
		nth  int // number of the run within its file, from 1
	}
	groups := map[key][]*record.Part{}
	var order []key
	nth := map[string]int{}
	for _, p := range parts {
		nth[p.Run.File]++
		if len(p.Ranks) < 2 || m.patternMatchOf(p).Rank >= 0 {
			continue
		}
		for _, path := range withoutEachNumber(filepath.ToSlash(p.Run.File)) {
			k := key{path, nth[p.Run.File]}
			if groups[k] == nil {
				order = append(order, k)
			}
			groups[k] = append(groups[k], p)
		}
	}
	joined := map[*record.Part]bool{} // into another part
	for _, k := range order {
		group := groups[k]
		if len(group) < 2 || slices.ContainsFunc(group, func(p *record.Part) bool { return joined[p] || m.ranks[p].ranks != nil }) || !areNodes(group) {
			continue
		}
		m.mergeNodes(group, filepath.Clean(strings.Replace(k.path, "*", "", 1)))
		for _, p := range group[1:] {
			joined[p] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p *record.Part) bool { return joined[p] })
}

// withoutEachNumber returns the path once for each number in the names that are searched, with
// the number, and a word for nodes before it, replaced by *.
func withoutEachNumber(path string) []string {
	first := len(path) // offset of the names that are searched
	for range identity.MaxPathFolders + 1 {
		if first = strings.LastIndexByte(path[:first], '/'); first < 0 {
			break
		}
	}
	var found []string
	for at := first + 1; at < len(path); {
		end := at
		for end < len(path) && '0' <= path[end] && path[end] <= '9' {
			end++
		}
		if end == at {
			at++
			continue
		}
		from := at
		for _, word := range []string{"node", "host"} {
			if rest, ok := strings.CutSuffix(strings.ToLower(path[first+1:at]), word); ok {
				from = first + 1 + len(rest)
			} else if rest, ok := strings.CutSuffix(strings.TrimRight(strings.ToLower(path[first+1:at]), "-_"), word); ok {
				from = first + 1 + len(rest)
			}
		}
		found = append(found, path[:from]+"*"+path[end:])
		at = end
	}
	return found
}

// areNodes reports whether parts are those of the nodes of one run: no two have the same rank, and
// together they have all, or if the parts state the number of workers, at least no others. Each must
// have equally many ranks, since the mean of their mean losses is that of all ranks only then.
func areNodes(group []*record.Part) bool {
	var all []int
	for _, p := range group {
		if len(p.Ranks) != len(group[0].Ranks) {
			return false
		}
		all = append(all, p.Ranks...)
	}
	slices.Sort(all)
	if len(slices.Compact(slices.Clone(all))) < len(all) {
		return false
	}
	world := contentWorld(group)
	if world == 0 {
		world = len(all)
	}
	return all[len(all)-1] < world && !contradictEachOther(group)
}

// mergeNodes merges the parts of the nodes of one run into the part with rank 0, which becomes the
// first of group. path is the path whose names identify the run.
func (m *merger) mergeNodes(group []*record.Part, path string) {
	slices.SortFunc(group, func(a, b *record.Part) int { return a.Ranks[0] - b.Ranks[0] })
	first := group[0]
	var ranks, firstRanks []int
	for i, p := range group {
		if i > 0 {
			p.Report.AddAssumption("%s of the run in %s", describeRanks(p.Ranks), first.Run.File)
		}
		ranks = append(ranks, p.Ranks...)
		firstRanks = append(firstRanks, p.Ranks[0])
		p.RanksProblem = ""
	}
	slices.Sort(ranks)
	mergeRanks(group, firstRanks)
	first.Claims = slices.DeleteFunc(first.Claims, func(c record.Claim) bool { return c.Property == runs.PropertyWorkers && c.AtLeast })
	first.AddClaim(runs.PropertyWorkers, int64(ranks[len(ranks)-1])+1, runs.SourceContent, fmt.Sprintf("the ranks of %s", english.Count(len(group), "file")))
	first.Claims[len(first.Claims)-1].AtLeast = true
	first.Ranks = ranks
	m.ranks[first] = rankSet{ranks, path}
}

// describeRanks returns ranks as a text such as "ranks 2 and 3", or "ranks 8 to 15" if they follow
// each other.
func describeRanks(ranks []int) string {
	if n := len(ranks); n > 2 && ranks[n-1]-ranks[0] == n-1 {
		return fmt.Sprintf("ranks %d to %d", ranks[0], ranks[n-1])
	}
	var words []string
	for _, rank := range ranks {
		words = append(words, fmt.Sprint(rank))
	}
	return "ranks " + english.List(words)
}
