package grid

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/internal/clean"
)

// publicationRows returns the table for a paper. It has the human-readable columns that have a value,
// with units in the header and each interval as ± half its width. numeric tells for each column
// whether it contains numbers. Counts other than workers, and optional numbers, become a remark if
// they are the same in all of several rows.
func (g Grid[T]) publicationRows() (lines [][]string, numeric []bool, remarks []string) {
	lines = make([][]string, 1+len(g.Rows))
	var same []string
	intervals := false
	for _, c := range g.Columns {
		if !c.Brief || c.Interval || !slices.ContainsFunc(g.Rows, c.hasValue) {
			continue
		}
		cells, mayVary := make([]string, len(g.Rows)), c.Name == "workers" || c.Count == nil && (c.Value == nil || !c.Optional)
		for i, r := range g.Rows {
			cell := c.displayCell(r)
			if c.Half != nil && c.Half(r) > 0 && !math.IsInf(c.Half(r), 0) {
				cell, intervals, mayVary = formatPlusMinus(c.Value(r), c.Half(r)), true, true
			}
			cells[i] = clean.EscapeText(cell)
		}
		if !mayVary && len(cells) > 1 && len(slices.Compact(slices.Clone(cells))) == 1 {
			same = append(same, c.publicationTitle()+" "+cells[0])
			continue
		}
		lines[0], numeric = append(lines[0], c.publicationTitle()), append(numeric, c.Text == nil)
		for i, cell := range cells {
			lines[i+1] = append(lines[i+1], cell)
		}
	}
	if len(same) > 0 {
		remarks = append(remarks, "in all rows: "+strings.Join(same, ", "))
	}
	if intervals {
		remarks = append(remarks, "±: half the width of the interval")
	}
	return lines, numeric, append(remarks, g.Remarks...)
}

// publicationSpellings maps words in column names to their spelling in a paper.
var publicationSpellings = map[string]string{"speedup": "speed-up", "iou": "IoU", "dice": "Dice"}

func (c Column[T]) publicationTitle() string {
	title, unit := c.Name, c.Unit
	for _, quantity := range []struct{ end, instead, unit string }{{"_seconds", "_time", "s"}, {"_joules", "", "J"}} {
		if name, ok := strings.CutSuffix(c.Name, quantity.end); ok && unit == "" {
			title, unit = name+quantity.instead, quantity.unit
		}
	}
	words := strings.Split(title, "_")
	for i, word := range words {
		words[i] = cmp.Or(publicationSpellings[word], word)
	}
	if title = strings.Join(words, " "); unit != "" {
		title += " (" + unit + ")"
	}
	return title
}

// formatPlusMinus formats v ± half, the half-width of its interval. Both are rounded to the second
// significant digit of half.
func formatPlusMinus(v, half float64) string {
	decimals := max(0, 1-int(math.Floor(math.Log10(half))))
	return fmt.Sprintf("%.*f ± %.*f", decimals, v, decimals, half)
}

func (g Grid[T]) markdown() string {
	lines, numeric, remarks := g.publicationRows()
	var b strings.Builder
	row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	rule := make([]string, len(numeric))
	for i := range rule {
		if rule[i] = "---"; numeric[i] {
			rule[i] = "---:"
		}
	}
	for i, cells := range lines {
		for k := range cells {
			cells[k] = strings.ReplaceAll(cells[k], "|", `\|`)
		}
		if row(cells); i == 0 {
			row(rule)
		}
	}
	for i, line := range remarks {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "- %s\n", clean.EscapeText(line))
	}
	return b.String()
}

// latexEscapes replaces characters that have a meaning in LaTeX, or that its fonts may lack.
var latexEscapes = strings.NewReplacer(
	`\`, `\textbackslash{}`, "&", `\&`, "%", `\%`, "$", `\$`, "#", `\#`, "_", `\_`, "{", `\{`, "}", `\}`, "~", `\textasciitilde{}`, "^", `\textasciicircum{}`,
	"±", `$\pm$`, "×", `$\times$`, "∞", `$\infty$`, "√", `$\surd$`, "µ", `$\mu$`, "α", `$\alpha$`, "β", `$\beta$`, "σ", `$\sigma$`, "κ", `$\kappa$`, "λ", `$\lambda$`,
)

// latex returns the table in LaTeX, with the remarks as comments before it. The lines are drawn by
// the package booktabs.
func (g Grid[T]) latex() string {
	lines, numeric, remarks := g.publicationRows()
	var b strings.Builder
	b.WriteString("% needs \\usepackage{booktabs}\n")
	for _, line := range remarks {
		fmt.Fprintf(&b, "%% %s\n", clean.EscapeText(line))
	}
	b.WriteString(`\begin{tabular}{`)
	for _, n := range numeric {
		if n {
			b.WriteByte('r')
		} else {
			b.WriteByte('l')
		}
	}
	b.WriteString("}\n\\toprule\n")
	for i, cells := range lines {
		for k := range cells {
			cells[k] = latexEscapes.Replace(cells[k])
		}
		fmt.Fprintf(&b, "%s \\\\\n", strings.Join(cells, " & "))
		if i == 0 {
			b.WriteString("\\midrule\n")
		}
	}
	b.WriteString("\\bottomrule\n\\end{tabular}\n")
	return b.String()
}
