package strategy

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Explain returns a table of all strategies, with what each guarantees and sends, followed by an
// explanation of each.
func Explain() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "strategy\toptions\tbytes that a worker sends per step\tresult")
	for _, k := range Kinds() {
		options := strings.Join(k.Options, ", ")
		if options == "" {
			options = "none"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", k.Name, options, k.Bytes, k.Guarantee)
	}
	_ = w.Flush() // writes to a strings.Builder never fail
	b.WriteString("\nN: workers, P: bytes of the parameters, T: gradients, K: steps between two averages, S: servers, R: replicas in each process, M: batches per step (accumulate).\n")
	for _, k := range Kinds() {
		fmt.Fprintf(&b, "\n%s\n%s\n", k.Name, wrapText(k.About, "  ", 88))
	}
	return b.String()
}

// wrapText breaks text into lines of at most width characters, each of which begins with indent.
func wrapText(text, indent string, width int) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(indent)+len(line)+1+len(word) > width {
			lines, line = append(lines, indent+line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(lines, indent+line), "\n")
}
