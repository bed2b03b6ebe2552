// Package textlog reads text that programs write for people: log files, and the
// output of jobs, in which the lines of several programs and ranks are mixed.
//
// Each line is read in three steps. First the labels at its beginning are removed
// (prefix.go): the rank that srun or mpirun writes, a time stamp, a level. Then the
// table of formats (formats.go) determines the format from how the rest begins.
// Finally the format's function for such lines adds their values to the current run
// (run.go). A line that no format recognizes is counted as ignored; a damaged line is
// reported as a problem. A line such as "Epoch 1/5" after later epochs begins a new run,
// since a file may contain several.
//
// The package has many small files because each format has a separate file, which
// begins with examples of its lines.
//
// Long logs repeat a few forms of lines. Three fast paths read these at several
// hundred megabytes per second: shapes (package scan) for lines that differ only in
// their numbers, parseLinesFast for consecutive lines of one format, and
// epochLineParser for logs of epochs, which several goroutines parse in chunks
// (ahead.go). A fast path rejects any line that differs, so that the format's
// function, which defines what a line means, reads it. Tests compare the results of
// both.
package textlog
