package identity

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/programfile"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// PathName is the name of a file (without its extensions) or of a folder above it.
type PathName struct {
	names.Fields
	Name   string
	Source runs.Source // SourceFileName or SourceFolderName
}

// MaxPathFolders is the number of folders above a file whose names are searched.
const MaxPathFolders = 4

// PathNames returns the names of a path that are searched: the file name, followed by up to four
// folders, innermost first.
func PathNames(path string) []PathName {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	base := record.UncompressedName(filepath.Base(path))
	if ext := filepath.Ext(base); strings.Trim(ext, ".0123456789") != "" { // not the 0 in rank.0
		base = strings.TrimSuffix(base, ext)
	}
	found := []PathName{NewPathName(base, runs.SourceFileName)}
	for range MaxPathFolders {
		path = filepath.Dir(path)
		name := filepath.Base(path)
		if name == string(filepath.Separator) || name == "." {
			break
		}
		found = append(found, NewPathName(name, runs.SourceFolderName))
	}
	return found
}

// NewPathName parses a name. The host in the name of an event file, and in the name of the
// folder that PyTorch's SummaryWriter creates (Aug12_10-00-00_host), says nothing about a run.
func NewPathName(name string, source runs.Source) PathName {
	fields := names.Parse(name)
	if isEventsName(name) || len(name) > len(summaryWriterStamp) && isSummaryWriterStamp(name[:len(summaryWriterStamp)]) {
		fields = names.Parse("")
		fields.Rest = name
	}
	return PathName{fields, name, source}
}

// isEventsName reports whether a file has a name of TensorBoard's event files.
func isEventsName(name string) bool { return strings.HasPrefix(name, "events.out.tfevents") }

// summaryWriterStamp is the form of the time at the beginning of a folder's name.
const summaryWriterStamp = "Aug12_10-00-00_"

// isSummaryWriterStamp reports whether text has the form of summaryWriterStamp.
func isSummaryWriterStamp(text string) bool {
	for i := range len(summaryWriterStamp) {
		got, form := text[i], summaryWriterStamp[i]
		switch isDigit := got >= '0' && got <= '9'; {
		case form >= '0' && form <= '9' && !isDigit:
			return false
		case form == '_' || form == '-':
			if got != form {
				return false
			}
		case form >= 'A' && isDigit:
			return false
		}
	}
	return true
}

// ClaimNames adds what the names in a path say about p's run. The name of a folder counts more
// than that of the file, and an inner folder more than an outer one. numbersAreRanks is set if a
// number after gpu, worker, rank or task in the path cannot be a number of workers.
func ClaimNames(p *record.Part, path string, numbersAreRanks bool) {
	if study, ok := programfile.ParseStudyName(path); ok {
		claimStudyName(p, study, filepath.Base(path))
	}
	all := PathNames(path)
	countAt := -1 // index of the first name with a number of workers
	for i, f := range all {
		if f.Workers > 0 {
			p.AddClaim(runs.PropertyWorkers, int64(f.Workers), f.Source, f.Name)
			if countAt < 0 {
				countAt = i
			}
		}
		if f.Nodes > 0 {
			p.AddClaim(runs.PropertyNodes, int64(f.Nodes), f.Source, f.Name)
		}
		if f.Seed >= 0 && i < 2 {
			p.AddClaim(runs.PropertySeed, int64(f.Seed), f.Source, f.Name)
		}
	}
	// A bare number in a folder named for a worker count numbers the runs: base/4GPU/00/out.log.
	for _, f := range all[:max(countAt, 0)] {
		if seed, err := strconv.Atoi(f.Name); err == nil && seed >= 0 && len(f.Name) <= maxRepeatDigits {
			p.AddClaim(runs.PropertySeed, int64(seed), f.Source, f.Name)
			break
		}
	}
	if slices.ContainsFunc(p.Claims, func(c record.Claim) bool { return c.Property == runs.PropertyWorkers }) || numbersAreRanks {
		return
	}
	for _, f := range all {
		switch {
		case f.Number < 0:
			continue
		case (f.Word == "gpu" || f.Word == "worker") && f.Number > 0 && f.Name[f.At] != '0':
			p.AddClaim(runs.PropertyWorkers, int64(f.Number), f.Source, f.Name)
		default:
			p.AddClaim(runs.PropertyRank, int64(f.Number), f.Source, f.Name)
		}
		return
	}
}

// maxRepeatDigits is the number of digits of a name that is only the number of a repeat. Longer
// numbers are those of jobs.
const maxRepeatDigits = 3

// claimStudyName adds what a file name of the U-Net study says.
func claimStudyName(p *record.Part, study programfile.StudyName, name string) {
	p.AddClaim(runs.PropertyWorkers, int64(study.Workers), runs.SourceFileName, name)
	p.AddTextClaim(runs.PropertySeries, study.Series, runs.SourceFileName, name)
	if study.Repeat > 0 {
		p.AddClaim(runs.PropertySeed, int64(study.Repeat), runs.SourceFileName, name)
	}
}
