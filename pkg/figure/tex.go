package figure

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
)

// maxTeXRows is the largest number of rows in a table for a paper.
const maxTeXRows = 40

// TeX returns a LaTeX tabular with \hline, which needs no package. It has a label and its own
// caption, because the figure's caption describes the image. Numbers have four digits, and a dash
// stands for a value that was not measured. It omits columns without numbers and, if there are
// intervals, lowest and highest values. A longer table ends after 40 rows with a comment.
func (f *Figure) TeX() string {
	f.computeTableOnce()
	table := f.table
	if f.brief != nil {
		table = *f.brief
	}
	if table.Err != nil || table.Ncol() == 0 {
		return "% the figure has no table\n"
	}
	names := selectTeXColumns(table)
	rows := min(table.Nrow(), maxTeXRows)
	var b strings.Builder
	fmt.Fprintf(&b, "\\begin{table}\n\\centering\n\\caption{%s}\n\\label{tab:%s}\n\\begin{tabular}{", escapeTeX(f.tableCaption()), strings.ReplaceAll(sanitizeTeXLabel(f.name), "_", "-"))
	for _, name := range names {
		if table.Col(name).Type() == series.String {
			b.WriteString("l")
		} else {
			b.WriteString("r")
		}
	}
	b.WriteString("}\n\\hline\n")
	head := make([]string, len(names))
	for i, name := range names {
		head[i] = escapeTeX(strings.ReplaceAll(name, "_", " "))
	}
	b.WriteString(strings.Join(head, " & ") + " \\\\\n\\hline\n")
	for row := range rows {
		cells := make([]string, len(names))
		for i, name := range names {
			cells[i] = formatTeXCell(table.Col(name), row)
		}
		b.WriteString(strings.Join(cells, " & ") + " \\\\\n")
	}
	b.WriteString("\\hline\n\\end{tabular}\n")
	if rows < table.Nrow() {
		fmt.Fprintf(&b, "%% %d of %d rows; the CSV has all\n", rows, table.Nrow())
	}
	b.WriteString("\\end{table}\n")
	return b.String()
}

func (f *Figure) tableCaption() string {
	return strings.TrimSpace(cmp.Or(f.heading, f.name) + ": the plotted values. " + f.origin)
}

func selectTeXColumns(table dataframe.DataFrame) []string {
	names := slices.DeleteFunc(table.Names(), func(name string) bool {
		c := table.Col(name)
		return c.Type() == series.Float && !slices.ContainsFunc(c.Float(), func(v float64) bool { return !math.IsNaN(v) })
	})
	return slices.DeleteFunc(names, func(name string) bool {
		i := strings.LastIndex(name, "_")
		if i < 0 || !slices.Contains([]string{"_low", "_high", "_min", "_max"}, name[i:]) {
			return false
		}
		base, extreme := name[:i], name[i:] == "_min" || name[i:] == "_max"
		return slices.Contains(table.Names(), base) &&
			(isRedundantColumn(table, name, base) || extreme && slices.Contains(names, base+"_low") && !isRedundantColumn(table, base+"_low", base))
	})
}

// isRedundantColumn reports whether each number in column a is NaN or equal to the number in column
// b. This is so for lowest values (a) and medians (b) if there are no repeated runs.
func isRedundantColumn(table dataframe.DataFrame, a, b string) bool {
	return slices.EqualFunc(table.Col(a).Float(), table.Col(b).Float(), func(x, y float64) bool {
		return x == y || math.IsNaN(x)
	})
}

func formatTeXCell(c series.Series, row int) string {
	e := c.Elem(row)
	if c.Type() != series.Float {
		return escapeTeX(e.String())
	}
	return formatTeXNumber(e.Float())
}

func formatTeXNumber(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "--"
	case math.IsInf(v, 0):
		return map[bool]string{true: "$\\infty$", false: "$-\\infty$"}[v > 0]
	case v == math.Trunc(v) && a < 1e7:
		return typesetMinusSign(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 1e7 || a < 1e-3:
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', 3, 64), "e")
		n, err := strconv.Atoi(exponent)
		if err != nil {
			return strconv.FormatFloat(v, 'g', 4, 64)
		}
		return fmt.Sprintf("$%s\\cdot10^{%d}$", mantissa, n)
	default:
		digits := max(0, 3-int(math.Floor(math.Log10(a))))
		return typesetMinusSign(strconv.FormatFloat(v, 'f', digits, 64))
	}
}

func typesetMinusSign(text string) string {
	if strings.HasPrefix(text, "-") {
		return "$" + text + "$"
	}
	return text
}

func escapeTeX(text string) string {
	return strings.NewReplacer(
		`\`, `\textbackslash{}`, "{", `\{`, "}", `\}`, "$", `\$`, "&", `\&`, "#", `\#`, "%", `\%`, "_", `\_`,
		"^", `\textasciicircum{}`, "~", `\textasciitilde{}`, "<", `\textless{}`, ">", `\textgreater{}`,
		"\n", " ", "\r", " ", "×", `$\times$`, "±", `$\pm$`, "→", `$\to$`, "−", `$-$`, "·", `$\cdot$`, "≥", `$\ge$`, "≤", `$\le$`,
		"Δ", `$\Delta$`, "λ", `$\lambda$`, "σ", `$\sigma$`, "κ", `$\kappa$`, "α", `$\alpha$`, "β", `$\beta$`, "µ", `$\mu$`, "²", `$^2$`, "√", `$\surd$`,
		"…", `\ldots{}`, "–", "--", "’", "'",
	).Replace(text)
}

// sanitizeTeXLabel replaces characters that are not allowed in a LaTeX label.
func sanitizeTeXLabel(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, name)
}
