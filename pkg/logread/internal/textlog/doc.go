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
// Long logs repeat a few forms of lines, which must be read at several hundred
// megabytes per second. No form has a second parser for that. A rule with a
// template (package template) describes its line only there: readSimilarLines
// matches the following lines in the buffer with the same template, and
// epochLineParser does so for the lines of epochs, in chunks that several
// goroutines parse (ahead.go). A rule with a function that parses a line of
// Keras, MLLOG or DLLogger records the shape of the line (package scan), by which
// similar lines are read. A line that differs is read by parseLine. Tests compare
// the results of both.
package textlog
