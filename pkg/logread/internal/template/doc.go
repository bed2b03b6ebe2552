// Package template matches the lines of a log with templates such as
//
//	Epoch {epoch}: loss {train_loss} time {seconds}s, {samples_per_second} samples/sec
//
// and returns the numbers in them, in the units that Lockstep uses: seconds,
// samples per second, and fractions between 0 and 1.
//
// A template describes a complete line. Blanks at both ends do not count, and one or
// more blanks match one or more blanks.
//
//	{name}       a number, or a text for {model} and {series}; the name is one of
//	             StandardFields, or any other name for a metric
//	{name:unit}  a number for which the line does not show the unit, such as
//	             {seconds:ms} or {accuracy:%}
//	*            any text, also none
//	{?1}         the same; package suggest writes it in a place whose meaning is not known
//	{{           a brace
//	/regexp/     a regular expression (RE2) with named groups such as (?P<epoch>\d+); it is
//	             searched in the line
//
// A number has an optional sign, decimals and an exponent, or is nan or inf; commas may
// separate thousands. Blanks may precede it. A unit may follow it, in the line or in the
// template:
//
//	ns us ms s sec min m h d, 1:02:03, 12:30, 3m12s, 1 day, 2:03:04   a time, which becomes seconds
//	k M G                                                             a multiple, as in 1.2k
//	%                                                                 a percentage
//
// Fields of times also accept a blank before the unit. For a metric, m alone is no unit.
// Percentages of accuracies, iou and dice become fractions; those of metrics stay as they
// are. A number is followed by no other letter unless the template contains that letter,
// so that "12GB" is not read as 12.
package template
