// Package textlog reads text that programs write for people: log files, and the
// output of jobs, in which the lines of several programs and ranks are mixed.
//
// Each line is read in three steps. First the labels at its beginning are removed (StripPrefix of
// package logline): the rank that srun or mpirun writes, a time stamp, a level. Then the table of
// formats (formats.go) determines the format from how the rest begins. Finally the format's function
// for such lines adds their values to the current run (logline.Run). A line that no format recognizes
// is counted as ignored; a damaged line is reported as a problem. A line such as "Epoch 1/5" after
// later epochs begins a new run. At the end of the file, the runs become parts (finish.go).
//
// The formats are in packages below internal: trainer, benchmark and system. They use
// the state of the log and the description of a format in package logline. A format
// whose lines templates describe (package template) needs only an entry in the table.
package textlog
