// Package scan splits text without copying it: into lines, numbers, the members
// of JSON objects, and lines that differ only in their numbers.
//
// The readers of logs spend nearly all their time here. [LineReader] returns
// one line after another from a buffer that it reuses, so a line is valid until
// the next call. [ParseDecimal] parses the numbers that programs print, eight
// digits at a time, and leaves unusual ones to strconv. [Cursor] parses a line
// from the left and remembers the first mismatch, so that a parser checks for
// errors once, at its end. [ObjectIterator] iterates over a JSON object.
// [ShapeCache] remembers what a parser found out about a line, and reads later
// lines of the same shape by comparing the text between their numbers.
//
//	c := scan.Cursor{Rest: line}
//	epoch := c.Expect("Epoch ").ReadInteger()
//	loss := c.Expect(": loss ").ReadFloat()
//	if !c.IsComplete() {
//		return // the line has another form
//	}
//
// The package knows nothing about logs, runs or reports.
package scan
