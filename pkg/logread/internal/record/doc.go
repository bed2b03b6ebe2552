// Package record holds what the readers of all formats share: what they get and
// what they fill.
//
// A [Format] recognizes files by their first bytes and reads them. Its reader gets
// an [Input] (one file's content, unpacked, and its size) and returns a [Part] for
// each run that the file describes, or for what it adds to the run of other files.
// What it could not use, ignored or assumed goes into the [Report] of the file:
// nothing is left out in silence.
//
//	func readFile(ctx context.Context, in *record.Input) ([]*record.Part, error) {
//		lines := scan.NewLines(in.Reader, in.Size)
//		…
//		in.Problem(lines.Number, "expected a number, got %.40q", text)
//		return []*record.Part{{Role: record.Principal, Run: run}}, nil
//	}
//
// [Curve] and [Track] gather the values of steps and epochs in bounded memory.
// Package logread, above the formats, merges the parts of all files into runs and
// finds out who ran where the content does not say it.
package record
