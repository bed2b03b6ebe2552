// Package logread reads training logs, both the run folders of this project and
// the logs of other programs, into [runs.Run].
//
// [Read] walks a path. A folder with run.json is a run folder, which [runs.Read] reads.
// Of its other files only traces are read, except in the run folder of another program
// that lockstep launch started: all of its files, such as worker-<rank>.log, add to the run.
// In other folders, every regular file that is not hidden is decompressed if necessary
// (gzip, zstd, xz, bzip2) and read by the first format that recognizes its first bytes. A link is
// followed if its target is not read otherwise.
//
// Below this package, internal/record contains what all formats share, and internal/scan
// splits text; the formats are in internal/textlog (lines that programs print), internal/table (CSV, JSON, YAML),
// internal/events (TensorBoard) and internal/trace.
// A file becomes runs in three steps: the format's reader returns a record.Part for
// each run, merge.go and join.go merge the parts that belong to one run, and identity.go
// adds what the content did not contain. Files of several ranks are merged only if a
// pattern with {rank} names them.
//
// What identifies a run (its numbers of workers and nodes, seed, series, batch and model) comes
// from the source with the highest precedence: a pattern in [Options], the content, a
// configuration in the same folder, the command that started the program, the name of a folder,
// the name of the file. [runs.Run].Origins contains the source of each property, and a
// contradiction is a problem. If the number of workers is unknown, it is 0 and a problem is
// reported. evidence.go collects what the sources state, internal/names reads the names, and
// identity.go chooses.
//
// Nothing is guessed silently. [Explain] returns a [Report] per file that lists
// what was read, what was not, and what was assumed. A value that cannot be used
// becomes a [runs.Problem] with file and line.
//
// [Tidy] returns everything as one table with one row per measured value, and
// [Write] writes that table as CSV, JSON, Parquet or Arrow. [Follow] reads a folder
// of logs while it grows.
//
//	found, problems, err := logread.Read("logs/published")
//	if err != nil {
//		return err
//	}
//	for _, run := range found {
//		fmt.Println(run.Info.Series, run.Info.Workers, len(run.Epochs))
//	}
package logread
