package identity

import (
	"slices"
	"strings"

	"lockstep/pkg/runs"
)

// IsRunName reports whether a name contains a number of workers or nodes, a repeat number, or a
// number that may be a rank.
func IsRunName(name string) bool {
	f := NewPathName(name, runs.SourceFolderName)
	return f.Workers > 0 || f.Nodes > 0 || f.Seed >= 0 || f.Number >= 0
}

// meaninglessNames returns names of files and folders that do not describe what
// ran.
func meaninglessNames() []string {
	return []string{
		"out", "err", "log", "logs", "stdout", "stderr", "output", "metrics", "trainer_state", "train", "training", "validation", "eval", "test",
		"results", "result", "slurm", "job", "run", "runs", "events", "checkpoint", "version", "lightning_logs", "tensorboard", "tb", "hparams", "benchy", "console", "sacct", "trace", "trainer", "state", "dllogger", "synthetic", "stats",
		"wandb", "wandb-summary", "files", "mlruns", "vis_data", "scalars",
	}
}

// seriesFromPath returns the innermost name of the path that describes what ran, without its
// numbers, and the origin of the series. If no name does, it returns the file name.
func seriesFromPath(path string) (series string, origin runs.Origin) {
	all := PathNames(path)
	for _, f := range all {
		if text := meaningfulPart(f); text != "" {
			return text, runs.Origin{Source: f.Source, Detail: f.Name}
		}
	}
	return all[0].Name, runs.Origin{Source: runs.SourceFileName, Detail: all[0].Name}
}

// studyFromPath returns the innermost folder whose name describes something other than the
// series, and is not the name of a run of the series, such as unet-n2-s1 of unet. If no folder
// does, it returns the folder of the file. A series whose name is not stated, but comes from the
// path, may have the name of its study.
func studyFromPath(path, series string, stated bool) string {
	all := PathNames(path)[1:]
	for _, f := range all {
		text := meaningfulPart(f)
		isRun := text == series && text != f.Name && IsRunName(f.Name)
		if text != "" && !isRun && !(stated && f.Name == series) {
			return f.Name
		}
	}
	if len(all) == 0 {
		return series
	}
	return all[0].Name
}

// isRunID reports whether the name of a folder is one that W&B, such as
// run-20240101_120000-abc12345, or MLflow, 32 hexadecimal digits, generates for a run.
func isRunID(name string) bool {
	if len(name) == 32 && strings.Trim(name, "0123456789abcdef") == "" {
		return true
	}
	_, stamp, ok := strings.Cut(name, "run-")
	date, id, found := strings.Cut(stamp, "-")
	return ok && found && id != "" && len(date) == len("20240101_120000") && strings.Trim(date, "0123456789_") == ""
}

// meaningfulPart returns a name without the numbers of workers, nodes, ranks, repeats and jobs,
// or "" if only meaningless words such as "logs" are left.
func meaningfulPart(f PathName) string {
	if isEventsName(f.Name) || f.Source == runs.SourceFolderName && isRunID(f.Name) {
		return ""
	}
	isMeaningless := func(name string) bool {
		return slices.ContainsFunc(meaninglessNames(), func(known string) bool { return strings.EqualFold(name, known) })
	}
	var words []string
	plain := true
	for _, w := range strings.FieldsFunc(f.Rest, func(r rune) bool { return r == '_' || r == '-' || r == '.' || r == ' ' }) {
		if strings.Trim(w, "0123456789") == "" {
			continue
		}
		words = append(words, w)
		plain = plain && isMeaningless(w)
	}
	if plain || isMeaningless(f.Name) {
		return ""
	}
	return strings.Join(words, "-")
}
