// Package textlog reads what programs write for people: log files, and the output
// of jobs, in which the lines of several programs and ranks are mixed.
//
// Each line goes through three steps. First the labels at its beginning are taken
// off (prefix.go): the rank that srun or mpirun writes, a time stamp, a level. Then
// the table of formats (formats.go) finds the format that knows how the rest
// begins. The format's function takes the values and adds them to the current
// run (run.go); or it leaves the line to be counted as ignored, or notes why the
// line could not be used. A line such as "Epoch 1/5" after later epochs begins a
// new run, since a file may hold several.
//
// Every format has its own file, which begins with examples of its lines.
//
// Long logs repeat a few forms of lines. Three shortcuts read these at several
// hundred megabytes per second: shapes (package scan) for lines that differ in
// their numbers alone, usualLines for runs of lines of one format, and epochLines
// for logs of epochs, which ahead.go also reads in pieces by several goroutines.
// Each shortcut gives up on a line that differs, so that the format's function,
// which defines what a line means, reads it. Tests compare both ways.
package textlog
