package merge

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/logread/internal/events"
	"lockstep/pkg/logread/internal/identity"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Each rank of a run may write a file of its own: rank0.log to rank3.log, or stdout.log in the
// folders attempt_0/0 to attempt_0/3 of torchrun. These files are one run. But gpu1.log,
// gpu2.log and gpu4.log may be runs with 1, 2 and 4 workers. joinRanks tells them apart by what
// the files contain, and if they contain nothing about it, by whether the numbers start at 0.

// rankName is a path with a number that may be a rank.
type rankName struct {
	rank   int
	key    string      // the path with the number replaced by *
	path   string      // the path without the word and the number
	source runs.Source // user, or the kind of name
	name   string      // the name with the number replaced by *
}

// rankSet describes the ranks whose files form a part.
type rankSet struct {
	ranks []int
	path  string // the path whose names identify the run; empty for that of the file
}

// rankNameOf returns the rank in the path of p's file. ok is false if it has none.
func (m *merger) rankNameOf(p *record.Part) (rankName, bool) {
	if t := m.patternMatchOf(p); t.Rank >= 0 {
		return rankName{rank: t.Rank, key: t.Rest, source: runs.SourceUser}, true
	}
	path := filepath.ToSlash(p.Run.File)
	if p.Role == record.Companion { // the names of event files contain the time, the host and the process
		if !events.IsPart(p) {
			return rankName{}, false // a trace states its rank
		}
		path = filepath.ToSlash(filepath.Join(filepath.Dir(path), "events"))
	}
	if r, ok := torchrunRank(path); ok {
		return r, true
	}
	elements := strings.Split(path, "/")
	for i := len(elements) - 1; i >= 0 && i >= len(elements)-1-identity.MaxPathFolders; i-- {
		f := identity.NewPathName(elements[i], runs.SourceFolderName)
		if i == len(elements)-1 {
			f = identity.PathNames(path)[0]
		}
		if f.Number < 0 {
			continue
		}
		with := func(text string) string {
			return strings.Join(slices.Concat(elements[:i], []string{text}, elements[i+1:]), "/")
		}
		return rankName{
			rank: f.Number, source: f.Source, name: f.Name[:f.At] + "*" + f.Name[f.End:],
			key: with(elements[i][:f.At] + "*" + elements[i][f.End:]), path: filepath.Clean(with(elements[i][:f.WordAt] + elements[i][f.End:])),
		}, true
	}
	return rankName{}, false
}

// torchrunRank returns the rank in a path such as logs/none_k3x9a_1q/attempt_0/3/stdout.log, in
// which torchrun --log-dir logs writes the output of local rank 3. The name of the first folder
// consists of the name of the run, which is none by default, and eight random characters.
func torchrunRank(path string) (rankName, bool) {
	const randomLength = 8
	elements := strings.Split(path, "/")
	n := len(elements)
	if n < 3 || !strings.HasPrefix(elements[n-3], "attempt_") {
		return rankName{}, false
	}
	rank, err := strconv.Atoi(elements[n-2])
	if err != nil || rank < 0 {
		return rankName{}, false
	}
	r := rankName{rank: rank, source: runs.SourceFolderName, name: elements[n-3] + "/*"}
	above := elements[:n-3]
	r.key = strings.Join(slices.Concat(above, []string{elements[n-3], "*", elements[n-1]}), "/")
	if k := len(above) - 1; k >= 0 {
		name := above[k]
		if at := strings.LastIndexByte(name, '_'); at > 0 && len(name)-at-1 == randomLength {
			name = name[:at]
		} else if at := len(name) - randomLength - 1; at > 0 && name[at] == '_' { // the random characters contain _
			name = name[:at]
		}
		if name == "none" {
			name = ""
		}
		above = slices.Concat(above[:k], []string{name})
	}
	r.path = filepath.Clean(strings.Join(append(slices.Clip(above), elements[n-1]), "/"))
	return r, true
}

// joinRanks merges the parts of the files of the ranks of one run, and returns the merged parts
// and the others.
func (m *merger) joinRanks(parts []*record.Part) []*record.Part {
	type key struct {
		path string
		nth  int // number of the run within its file, from 1
	}
	groups := map[key][]*record.Part{}
	keyOf := map[*record.Part]key{}
	nameOf := map[*record.Part]rankName{}
	nth := map[string]int{}
	for _, p := range parts {
		if name, ok := m.rankNameOf(p); ok {
			nth[p.Run.File]++
			k := key{name.key, nth[p.Run.File]}
			groups[k] = append(groups[k], p)
			keyOf[p], nameOf[p] = k, name
		}
	}
	var kept []*record.Part
	joined := map[key]bool{}
	for _, p := range parts {
		k, ok := keyOf[p]
		if !ok {
			kept = append(kept, p)
			continue
		}
		if joined[k] {
			continue
		}
		joined[k] = true
		group := groups[k]
		slices.SortStableFunc(group, func(a, b *record.Part) int { return cmp.Compare(nameOf[a].rank, nameOf[b].rank) })
		kept = append(kept, m.joinGroup(group, nameOf)...)
	}
	return kept
}

// joinGroup merges parts whose paths differ only in a number, if the numbers are ranks of one
// run. The parts are in the order of the numbers.
func (m *merger) joinGroup(group []*record.Part, nameOf map[*record.Part]rankName) []*record.Part {
	names := make([]rankName, len(group))
	for i, p := range group {
		names[i] = nameOf[p]
	}
	ranks, origin, ok := findRanks(group, names)
	if !ok {
		if len(group) > 1 && names[0].rank == 0 { // numbers that start at 0 are no numbers of workers
			for _, p := range group {
				m.ranks[p] = rankSet{}
			}
		}
		return group
	}
	first := group[0]
	m.ranks[first] = rankSet{ranks, names[0].path}
	if len(group) == 1 {
		if !first.RankKnown && origin.Source != runs.SourceUser {
			first.AddClaim(runs.PropertyRank, int64(ranks[0]), origin.Source, origin.Detail)
		}
		return group
	}
	for i, p := range group[1:] {
		p.Report.AddAssumption("rank %d of the run in %s", ranks[i+1], first.Run.File)
	}
	mergeRanks(group, ranks)
	isRank := func(c record.Claim) bool { return c.Property == runs.PropertyRank }
	first.Claims = slices.DeleteFunc(first.Claims, isRank)
	first.AddClaim(runs.PropertyWorkers, int64(slices.Max(ranks))+1, origin.Source, origin.Detail)
	first.Claims[len(first.Claims)-1].AtLeast = true
	return group[:1]
}

// findRanks returns the ranks of parts whose paths differ only in a number, and where they are
// known from. ok is false if the numbers are not ranks of one run.
func findRanks(group []*record.Part, names []rankName) (ranks []int, origin runs.Origin, ok bool) {
	origin = runs.Origin{Source: names[0].source, Detail: names[0].name}
	for i := range names {
		if i > 0 && names[i].rank == names[i-1].rank { // rank0.log and rank00.log
			return nil, origin, false
		}
		ranks = append(ranks, names[i].rank)
	}
	if names[0].source == runs.SourceUser {
		origin.Detail = "a file for each rank"
		return ranks, origin, true
	}
	if contradictEachOther(group) {
		return nil, origin, false
	}
	if known := contentRanks(group); known != nil {
		same := len(slices.Compact(slices.Sorted(slices.Values(known)))) < len(known)
		if same || len(known) == 1 && known[0] != ranks[0] {
			return nil, origin, false // each file is the log of a run, such as that of its rank 0
		}
		return known, runs.Origin{Source: runs.SourceContent, Detail: fmt.Sprintf("the ranks of %s", english.Count(len(known), "file"))}, true
	}
	if world := contentWorld(group); world > 0 {
		ok = slices.Max(ranks) < world && len(group) <= world && world > 1
		return ranks, origin, ok
	}
	return ranks, origin, ranks[0] == 0 && len(group) > 1
}

// contentRanks returns the ranks that the contents of all parts state, or nil if one of them does
// not.
func contentRanks(group []*record.Part) []int {
	var ranks []int
	for _, p := range group {
		if !p.RankKnown {
			return nil
		}
		ranks = append(ranks, p.Rank)
	}
	return ranks
}

// contentWorld returns the number of workers that the contents state, or 0 if none does.
func contentWorld(group []*record.Part) int {
	for _, p := range group {
		if n := p.Run.Info.Workers; n > 0 {
			return n
		}
	}
	return 0
}

// contradictEachOther reports whether parts cannot be ranks of one run: their contents state
// different numbers of workers, series, models, batches or learning rates, or one ended before
// another started.
func contradictEachOther(group []*record.Part) bool {
	seen := map[string]string{}
	var lastStart, firstEnd time.Time
	for _, p := range group {
		info := &p.Run.Info
		values := map[string]string{"series": info.Series}
		if info.Workers > 0 {
			values["workers"] = strconv.Itoa(info.Workers)
		}
		for _, key := range append(identity.BatchKeys(), "lr", "learning_rate", "model", "arch", "epochs") {
			if v, ok := info.Config[key]; ok {
				values[key] = fmt.Sprint(v)
			}
		}
		for key, value := range values {
			if before := seen[key]; before != "" && value != "" && before != value {
				return true
			}
			seen[key] = cmp.Or(seen[key], value)
		}
		if !info.Started.IsZero() && info.Started.After(lastStart) {
			lastStart = info.Started
		}
		if !info.Ended.IsZero() && (firstEnd.IsZero() || info.Ended.Before(firstEnd)) {
			firstEnd = info.Ended
		}
	}
	return !firstEnd.IsZero() && firstEnd.Before(lastStart)
}

// mergeRanks merges the parts of the ranks of one run into the first part. ranks contains the rank
// of each part. Curves that belong to all ranks according to a file become those of its rank.
func mergeRanks(parts []*record.Part, ranks []int) {
	first := parts[0]
	checkRates(parts)
	by := make([][]runs.Epoch, len(parts))
	for i, p := range parts {
		by[i] = p.Run.Epochs
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
		addMissingPart(first, &rest)
	}
	if i := slices.IndexFunc(by, func(epochs []runs.Epoch) bool { return len(epochs) > 0 }); i > 0 {
		first.Run.File, first.Run.Kind = parts[i].Run.File, parts[i].Run.Kind
	}
	if slices.ContainsFunc(by, func(epochs []runs.Epoch) bool { return len(epochs) > 0 }) {
		first.Run.Epochs = record.MergeEpochs(by, first.SumRates, first.Report)
	}
}

// checkRates adds a problem to the first part if the ranks logged different
// throughputs for an epoch, since each may be the rank's own or that of all
// workers. record.MergeEpochs keeps those of the first rank.
func checkRates(ranks []*record.Part) {
	first := ranks[0]
	for _, e := range first.Run.Epochs {
		for _, p := range ranks[1:] {
			i := slices.IndexFunc(p.Run.Epochs, func(o runs.Epoch) bool { return o.Epoch == e.Epoch })
			if first.SumRates || i < 0 || !(e.SamplesPerSecond != p.Run.Epochs[i].SamplesPerSecond && e.SamplesPerSecond > 0 && p.Run.Epochs[i].SamplesPerSecond > 0) {
				continue
			}
			first.Report.AddProblem(0, "the ranks logged different throughputs (%g and %g samples/s in epoch %d); that of the first rank is taken as the throughput of all workers", e.SamplesPerSecond, p.Run.Epochs[i].SamplesPerSecond, e.Epoch)
			return
		}
	}
}

// maxListedRanks is the number of missing ranks that a problem names.
const maxListedRanks = 8

// reportMissing adds a problem that names the ranks of p's run that have no file. Often only
// rank 0 writes a file, which is no problem.
func (s rankSet) reportMissing(p *record.Part) {
	if len(s.ranks) == 0 || len(s.ranks) == 1 && s.ranks[0] == 0 {
		return
	}
	var missing []string
	n := 0
	for rank := range p.Run.Info.Workers {
		if slices.Contains(s.ranks, rank) {
			continue
		}
		if n++; n <= maxListedRanks {
			missing = append(missing, strconv.Itoa(rank))
		}
	}
	if n == 0 {
		return
	}
	if n > maxListedRanks {
		missing = append(missing, fmt.Sprintf("%d more", n-maxListedRanks))
	}
	noun, verb := "rank", "has"
	if n > 1 {
		noun, verb = "ranks", "have"
	}
	p.Report.AddProblem(0, "%s %s of %d %s no file: only the values of the other ranks are used", noun, english.List(missing), p.Run.Info.Workers, verb)
}
