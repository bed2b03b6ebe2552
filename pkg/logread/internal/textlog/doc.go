// Package textlog reads text that programs write for people: log files, and the
// output of jobs, in which the lines of several programs and ranks are mixed.
//
// Each line is read in three steps. First the labels at its beginning are removed
// (StripPrefix of package logline): the rank that srun or mpirun writes, a time stamp,
// a level. Then the table of formats (formats.go) determines the format from how the
// rest begins. Finally the format's function for such lines adds their values to the
// current run (logline.Run). A line that no format recognizes is counted as ignored; a
// damaged line is reported as a problem. A line such as "Epoch 1/5" after later epochs
// begins a new run, since a file may contain several. At the end of the file, the runs
// become parts (finish.go).
//
// The formats are in packages below internal, by kind of program: trainer, benchmark and
// system. They use the state of the log and the description of a format in package
// logline. A format whose lines templates describe (package template) needs only an
// entry in the table.
//
// Long logs repeat a few forms of lines, which must be read at several hundred
// megabytes per second. No form has a second parser for that. A rule with a
// template describes its line only there: logline.ReadSimilarLines matches the
// following lines in the buffer with the same template, and epochLineParser does so for
// the lines of epochs of the SC21 logger, in chunks that several goroutines parse
// (ahead.go); its format is in this package for that reason. A rule with a function that
// parses a line of Keras, MLLOG or DLLogger records the shape of the line (package
// scan), by which similar lines are read. A line that differs is read by parseLine. Tests
// compare the results of both.
package textlog
