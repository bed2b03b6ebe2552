// Package record declares what the readers of all formats share: their input and
// their results.
//
// A [Format] recognizes files by their first bytes and reads them. Its reader gets an [Input] (the
// decompressed content of one file, and its size) and returns a [Part] for each run that the file
// describes, or for what it adds to the run of other files. Everything that it could not use,
// ignored or assumed goes into the [Report] of the file.
//
//	func readFile(ctx context.Context, in *record.Input) ([]*record.Part, error) {
//		lines := scan.NewLineReader(in.Reader, in.Size)
//		…
//		in.AddProblem(lines.Number, "expected a number, got %.40q", text)
//		return []*record.Part{{Role: record.Principal, Run: run}}, nil
//	}
//
// [Curve] and [RankEpochs] collect the values of steps and epochs in bounded
// memory. Package logread merges the parts of all files into runs and derives
// workers, series and seed if the content does not contain them.
package record
