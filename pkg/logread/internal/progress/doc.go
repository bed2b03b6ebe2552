// Package progress parses what training programs print while they run: progress
// bars of tqdm, meters with current values and means, lists of named values, and
// dictionaries of Python. Its functions look at one line each and know nothing of
// runs.
package progress
