package model

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"text/tabwriter"

	"lockstep/pkg/nn"
)

// Summary is a table of a network with one row per layer: the shape of its output, its
// trainable elements, the floating-point operations of its forward pass (a multiplication
// and an addition count as two; only convolutions and linear layers are counted, as is
// usual) and the size of its output in float32. It is printed as text and displayed as a
// table in a notebook.
type Summary struct {
	Name       string
	Task       Task
	Batch      int
	Layers     []nn.Layer
	Parameters int
	FLOPs      int64 // forward pass of the full batch
	States     int   // number of elements of running statistics
	// OutputBytes is the total size of all layers' outputs. A forward pass does not need
	// all of them at a time.
	OutputBytes int64
}

// Summarize builds net for the given batch size and returns its summary.
func Summarize(net Network, batch int) (*Summary, error) {
	if net == nil {
		return nil, fmt.Errorf("summarize network: no network was given")
	}
	g, err := net.Graph(batch, nn.Eval)
	if err != nil {
		return nil, fmt.Errorf("summarize network: %w", err)
	}
	s := &Summary{Name: net.Name(), Task: net.Task(), Batch: batch, Layers: g.Layers(), Parameters: g.ParameterCount()}
	for _, l := range s.Layers {
		s.FLOPs += l.FLOPs
		s.OutputBytes += outputBytes(l)
	}
	for _, v := range g.States() {
		s.States += v.Elements()
	}
	return s, nil
}

func outputBytes(l nn.Layer) int64 {
	bytes := int64(4)
	for _, d := range l.Shape {
		bytes *= int64(d)
	}
	return bytes
}

func summaryHeader() []string {
	return []string{"layer", "kind", "output", "parameters", "MFLOP forward", "MiB output"}
}

func (s *Summary) formatRows() [][]string {
	var rows [][]string
	for _, l := range s.Layers {
		rows = append(rows, []string{
			l.Name, l.Kind, formatShape(l.Shape), cellOrEmpty(l.Parameters > 0, formatThousands(int64(l.Parameters))),
			cellOrEmpty(l.FLOPs > 0, fmt.Sprintf("%.2f", float64(l.FLOPs)/1e6)),
			cellOrEmpty(len(l.Shape) > 0, fmt.Sprintf("%.3f", toMebibytes(outputBytes(l)))),
		})
	}
	return rows
}

func (s *Summary) formatTotals() []string {
	lines := []string{fmt.Sprintf("%s: %s parameters (%.1f MiB in fp32), %.3g GFLOP forward at batch %d, outputs of all layers %.1f MiB",
		s.Name, formatThousands(int64(s.Parameters)), toMebibytes(int64(4*s.Parameters)), float64(s.FLOPs)/1e9, s.Batch, toMebibytes(s.OutputBytes))}
	if s.States > 0 {
		lines = append(lines, fmt.Sprintf("%s running statistics of batch norms beside them: Keras counts these too, %s in all",
			formatThousands(int64(s.States)), formatThousands(int64(s.Parameters+s.States))))
	}
	return lines
}

func toMebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// String formats the table as text.
func (s *Summary) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{summaryHeader()}, s.formatRows()...) {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	_ = w.Flush() // writing to a strings.Builder never fails
	lines := strings.Split(b.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n") + strings.Join(s.formatTotals(), "\n") + "\n"
}

// HTML formats the table for a notebook.
func (s *Summary) HTML() string {
	var b strings.Builder
	b.WriteString("<table><thead>")
	row := func(tag string, cells []string) {
		b.WriteString("<tr>")
		for i, c := range cells {
			align := "left"
			if i > 1 {
				align = "right"
			}
			fmt.Fprintf(&b, `<%s style="text-align:%s">%s</%s>`, tag, align, html.EscapeString(c), tag)
		}
		b.WriteString("</tr>")
	}
	row("th", summaryHeader())
	b.WriteString("</thead><tbody>")
	for _, r := range s.formatRows() {
		row("td", r)
	}
	fmt.Fprintf(&b, "</tbody></table><p>%s</p>", html.EscapeString(strings.Join(s.formatTotals(), "; ")))
	return b.String()
}

// formatShape returns, for example, "3×64×64", or "scalar".
func formatShape(shape []int) string {
	if len(shape) == 0 {
		return "scalar"
	}
	parts := make([]string, len(shape))
	for i, d := range shape {
		parts[i] = strconv.Itoa(d)
	}
	return strings.Join(parts, "×")
}

func cellOrEmpty(shown bool, cell string) string {
	if !shown {
		return ""
	}
	return cell
}

// formatThousands puts a comma between groups of three digits.
func formatThousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
