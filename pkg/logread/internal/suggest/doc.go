// Package suggest proposes how to read text logs of unknown form. It finds the shapes of
// lines that repeat, and names a number only with two kinds of evidence: the words beside it are a
// field's name (package fields), and its values behave like those of the field. Other numbers stay
// numbered places, {?1}, {?2}, …, which a template reads like *.
//
// A line is split into words, numbers, times and punctuation ([token]). Lines with equal words and
// punctuation have the same shape. The words between two numbers form pieces, which punctuation
// separates; the last piece is the name of the second number, and must be a name as a whole: "max
// epoch" is not an epoch. The package reads no files and knows no commands.
//
//	found := suggest.Lines([][]textlog.Message{textlog.Messages(text)})
//	for _, t := range found.Templates {
//		fmt.Println(t.Rule) // such as "Epoch {epoch}: loss {train_loss} ppl {?1} time {seconds}s"
//	}
package suggest
