package names

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Name is the name of a file (without its extensions) or of a folder above it.
type Name struct {
	Fields
	Text   string
	Source runs.Source // SourceFileName, SourceFolderName or SourceRunName
	Folder string      // that contains the file or folder
	Masked bool        // whether a number in it is masked; see ParseMaskedPath
}

// MaxParsedFolders is the number of folders above a file whose names count.
const MaxParsedFolders = 4

// Path contains the names of a path that count: the file, then up to four folders, innermost first.
type Path []Name

// ParsePath returns the names of a path.
func ParsePath(path string) Path {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return ParseMaskedPath(path, path)
}

// ParseMaskedPath is like ParsePath for an absolute path, but the series and the study leave out numbers whose digits
// are # in masked, which otherwise equals path.
func ParseMaskedPath(path, masked string) Path {
	base := record.UncompressedName(filepath.Base(path))
	if ext := filepath.Ext(base); strings.Trim(ext, ".0123456789") != "" { // not the 0 in rank.0
		base = strings.TrimSuffix(base, ext)
	}
	var found Path
	for source := runs.SourceFileName; len(found) <= MaxParsedFolders && base != string(filepath.Separator) && base != "."; source = runs.SourceFolderName {
		folder := filepath.Dir(path)
		at := len(path) - len(filepath.Base(path))
		found = append(found, newName(base, masked[at:at+len(base)], source, folder))
		path, base = folder, filepath.Base(folder)
	}
	return found
}

// ParseFolder returns the name of a folder.
func ParseFolder(name string) Name { return newName(name, name, runs.SourceFolderName, "") }

// ParseRunName returns the name of a run in a table.
func ParseRunName(name string) Path { return Path{newName(name, name, runs.SourceRunName, "")} }

// newName parses a name. It ignores the host in the name of an event file, and in the name of the
// folder that PyTorch's SummaryWriter creates (Aug12_10-00-00_host).
func newName(name, masked string, source runs.Source, folder string) Name {
	fields := parseWithout(name, masked)
	if isEventsName(name) || sharedPatterns().stamp.MatchString(name) {
		fields = Parse("")
		fields.Rest = name
	}
	return Name{fields, name, source, folder, masked != name}
}

func isEventsName(name string) bool { return strings.HasPrefix(name, "events.out.tfevents") }

// DescribesRun reports whether the name contains a number of workers or nodes, a repeat number, or a
// number that may be a rank.
func (n Name) DescribesRun() bool {
	return n.Workers > 0 || n.Nodes > 0 || n.Seed >= 0 || n.Number >= 0
}

// TitleFolders are folders that contain numbered titles, such as 09-gpu and 10-gpu.
type TitleFolders map[string]bool

// Add adds the folders in a path that contain numbered titles: a name that begins with a
// zero-padded number before a word for workers or nodes.
func (t TitleFolders) Add(path string) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	for range MaxParsedFolders + 1 {
		folder, name := filepath.Dir(path), filepath.Base(path)
		if path = folder; name[0] != '0' {
			continue
		}
		tokens := tokenize(name)
		if len(tokens) > 2 && tokens[1].between {
			tokens = slices.Delete(tokens, 1, 2)
		}
		if len(tokens) > 1 && isCountNoun(tokens[1].text) {
			t[folder] = true
		}
	}
}

// Evidence returns what the names state about numbers of the run, such as its workers. In a folder
// named for a worker count, a number without a word is the number of a repeat, as 00 in
// base/4GPU/00/out.log.
func (all Path) Evidence(titles TitleFolders) (found []record.Evidence) {
	add := func(property runs.Property, v int, n Name) {
		found = append(found, record.Evidence{Property: property, Number: int64(v), Origin: runs.Origin{Source: n.Source, Detail: n.Text}})
	}
	repeat := -1 // index of the bare number
	counted := false
	for i, n := range all {
		if n.Leading && titles[n.Folder] {
			continue
		}
		if n.Workers > 0 {
			if !counted {
				repeat = slices.IndexFunc(all[:i], func(n Name) bool { return len(n.Text) <= maxRepeatDigits && strings.Trim(n.Text, "0123456789") == "" })
			}
			counted = true
			add(runs.PropertyWorkers, n.Workers, n)
		}
		if n.Nodes > 0 {
			add(runs.PropertyNodes, n.Nodes, n)
		}
		if n.Seed >= 0 && i < 2 {
			add(runs.PropertySeed, n.Seed, n)
		}
	}
	if repeat >= 0 {
		seed, _ := strconv.Atoi(all[repeat].Text) // digits
		add(runs.PropertySeed, seed, all[repeat])
	}
	return found
}

// NumberEvidence returns what a number after gpu, worker, rank or task means if nothing else states
// the number of workers: the number of workers or a rank. ok is false if the names contain no such
// number.
func (all Path) NumberEvidence() (e record.Evidence, ok bool) {
	for _, n := range all {
		if n.Number >= 0 {
			e = record.Evidence{Property: runs.PropertyRank, Number: int64(n.Number), Origin: runs.Origin{Source: n.Source, Detail: n.Text}}
			if (n.Word == "gpu" || n.Word == "worker") && n.Number > 0 && n.Text[n.At] != '0' {
				e.Property = runs.PropertyWorkers
			}
			return e, true
		}
	}
	return e, false
}

// scaledName matches the name of a file of a scaling study, such as weak_scale_8, and the number at its end.
var scaledName = regexp.MustCompile(`(?i)(?:^|[-_.]|weak|strong)scal(?:e|ing)(?:[-_.].*)?[-_.]([1-9][0-9]*)[-_.]*$`)

// ScaledNodes returns the number of nodes in the name of a scaling study's file, such as weak_scale_8
// or weak_scale_noddp_8, for a run whose number of workers is known. ok is false for other names.
func (all Path) ScaledNodes() (e record.Evidence, ok bool) {
	file := all[0]
	m := scaledName.FindStringSubmatch(file.Rest)
	if m == nil {
		return e, false
	}
	nodes, err := strconv.Atoi(m[1])
	if err != nil || nodes > MaxWorkersOrNodes {
		return e, false
	}
	return record.Evidence{Property: runs.PropertyNodes, Number: int64(nodes), Origin: runs.Origin{Source: file.Source, Detail: file.Text}}, true
}

// SeriesEvidence returns the names that describe what ran, without their numbers. The innermost one
// comes first and is the one that is used. If no name describes what ran, it returns the file name.
func (all Path) SeriesEvidence() (found []record.Evidence) {
	add := func(text string, n Name) {
		found = append(found, record.Evidence{Property: runs.PropertySeries, Text: text, Origin: runs.Origin{Source: n.Source, Detail: n.Text}})
	}
	for _, n := range all {
		if text := n.meaningfulText(); text != "" {
			add(text, n)
		}
	}
	if len(found) == 0 {
		add(all[0].Text, all[0])
	}
	return found
}

// Study returns the name of the study: the innermost folder that neither describes the series nor
// is named after a run of it, as unet-n2-s1 is in the series unet, nor has a masked number. If there is none, it returns the
// folder of the file. If stated is false, the series comes from the path, and the study may have
// the same name.
func (all Path) Study(series string, stated bool) string {
	folders := all[1:]
	for _, n := range folders {
		text := n.meaningfulText()
		isRun := text == series && text != n.Text && n.DescribesRun()
		if text != "" && !n.Masked && !isRun && !(stated && n.Text == series) {
			return n.Text
		}
	}
	if len(folders) == 0 {
		return series
	}
	return folders[0].Text
}

// isRunID reports whether W&B (run-20240101_120000-abc12345) or MLflow (32 hexadecimal digits) generated
// the name of a folder for a run, or whether it names a host, such as node01.
func isRunID(name string) bool {
	if stem := strings.TrimRight(name, "0123456789"); stem != name && (stem == "node" || stem == "host") || len(name) == 32 && strings.Trim(name, "0123456789abcdef") == "" {
		return true
	}
	_, stamp, ok := strings.Cut(name, "run-")
	date, id, found := strings.Cut(stamp, "-")
	return ok && found && id != "" && len(date) == len("20240101_120000") && strings.Trim(date, "0123456789_") == ""
}

// isMeaningless reports whether a word in a name does not describe what ran.
func isMeaningless(word string) bool {
	switch strings.ToLower(word) {
	case "out", "err", "log", "logs", "stdout", "stderr", "output", "metrics", "trainer_state", "train", "training", "validation", "eval", "test",
		"results", "result", "slurm", "job", "run", "runs", "events", "checkpoint", "version", "lightning_logs", "tensorboard", "tb", "hparams", "benchy", "console", "sacct", "trace", "trainer", "state", "dllogger", "synthetic", "stats",
		"wandb", "wandb-summary", "files", "mlruns", "vis_data", "scalars":
		return true
	}
	return false
}

func isSeparator(r rune) bool { return strings.ContainsRune("-_. =()", r) }

// meaningfulText returns the name without the numbers of workers, nodes, ranks, repeats and jobs, or "" if
// only words such as "logs" are left.
func (n Name) meaningfulText() string {
	if isEventsName(n.Text) || n.Source == runs.SourceFolderName && isRunID(n.Text) {
		return ""
	}
	var words []string
	plain := true
	for _, w := range strings.FieldsFunc(n.Rest, func(r rune) bool { return r != '=' && isSeparator(r) }) {
		if strings.Trim(w, "0123456789") == "" {
			continue
		}
		words = append(words, w)
		stem := strings.TrimRight(w, "0123456789")
		isNumbered := len(w)-len(stem) == 1 || len(w) > len(stem) && len(stem) > 1 // out12, but not r50
		plain = plain && (isMeaningless(stem) || isNumbered && isRunCounter(strings.ToLower(stem)))
	}
	if plain || isMeaningless(n.Text) {
		return ""
	}
	return strings.Join(words, "-")
}
