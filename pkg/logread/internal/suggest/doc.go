// Package suggest proposes how to read text logs and tables of unknown form: it
// finds the line shapes that repeat and gives each of their numbers a meaning.
//
// A line is split into words, numbers, times and punctuation ([token]). Lines
// that have equal words and punctuation have the same shape. [Lines] decides for
// each number of a shape what it probably means: from the words beside it, from
// its unit, and from how its values change from line to line. [Columns] does the
// same for the columns of a table. Both return the reason for each decision. The
// package reads no files and knows no commands.
//
//	found := suggest.Lines([]suggest.File{{Lines: lines}})
//	for _, t := range found.Templates {
//		fmt.Println(t.Text) // such as "Epoch {epoch}: loss {train_loss} time {seconds}s"
//	}
package suggest
