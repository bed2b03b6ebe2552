// Package scan splits text without copying it: into lines, numbers, and the members
// of JSON objects.
//
// The readers of logs spend nearly all their time here. [LineReader] returns
// one line after another from a buffer that it reuses, so a line is valid until
// the next call. [ParseDecimal] parses the numbers that programs print, and leaves
// unusual ones to strconv. [Cursor] parses a line from the left and remembers the
// first mismatch, so that a parser checks for errors once, at its end.
// [ObjectIterator] iterates over a JSON object, and [JSONReader] reads a JSON
// document of any length.
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
