package engine

import (
	"errors"
	"fmt"
	"html"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/klauspost/cpuid/v2"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/stack"
	"lockstep/pkg/runs"
)

// Device is a device that an engine can run on.
type Device struct {
	Name        string `json:"name"`
	Kind        string `json:"kind"`  // "cpu" or "cuda", as in Options.Device
	Index       int    `json:"index"` // among the devices of its kind
	MemoryBytes int64  `json:"memory_bytes"`
	Units       int    `json:"units"`   // cores, or multiprocessors
	Compute     string `json:"compute"` // CUDA's compute capability ("9.0"), or the CPU's vector instructions
	Driver      string `json:"driver,omitempty"`
	BusID       string `json:"pci_bus_id,omitempty"`
}

// Library is a C library that training on a GPU uses.
type Library struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Use     string `json:"use"`
	Problem string `json:"problem,omitempty"` // why it cannot be used, or ""
	Advice  string `json:"advice,omitempty"`  // how to solve the problem
}

// Machine lists devices and the libraries for GPUs. Notebooks display it as two tables.
type Machine struct {
	Devices   []Device  `json:"devices"`
	Libraries []Library `json:"libraries"`
	// NoGPU explains why no GPU can be used and what to do. It is empty if a GPU can be used.
	NoGPU string `json:"no_gpu,omitempty"`
	// Looked lists the folders that were searched for libraries.
	Looked []string `json:"looked"`
}

// Devices lists the devices that this machine can train on: the CPU first, then its CUDA
// GPUs. It loads the GPU libraries, which takes up to a few seconds the first time. A
// missing GPU is not an error: NoGPU explains what is missing.
func Devices() *Machine { return newMachine(stack.Probe(clib.NewSearch(clib.Environment{}))) }

func newMachine(r *stack.Report) *Machine {
	m := &Machine{Devices: []Device{describeCPU()}}
	driver := ""
	for _, l := range r.Libraries {
		x := Library{Name: string(l.Name), Version: l.Version, Path: l.Path, Use: l.Use}
		if l.Problem != nil {
			x.Problem, x.Advice = splitErrorAdvice(l.Problem)
		}
		m.Libraries = append(m.Libraries, x)
		switch {
		case l.Problem != nil:
		case l.Name == clib.CUDA:
			driver = "CUDA " + l.Version + driver
		case l.Name == clib.NVML:
			driver += ", driver " + l.Version
		}
	}
	for _, d := range r.Devices {
		m.Devices = append(m.Devices, Device{
			Name: d.Name, Kind: "cuda", Index: d.Index, MemoryBytes: d.MemoryBytes, Units: d.Multiprocessors,
			Compute: fmt.Sprintf("%d.%d", d.Compute[0], d.Compute[1]), Driver: driver, BusID: d.BusID,
		})
	}
	if r.Problem != nil {
		m.NoGPU = formatError(r.Problem)
	}
	for _, p := range r.Looked {
		m.Looked = append(m.Looked, p.String())
	}
	return m
}

// splitErrorAdvice divides err into a problem and advice on how to install a missing library.
// For an installed library, the advice is "" and problem says what to do. The list of
// searched folders, displayed once for all libraries, is left out.
func splitErrorAdvice(err error) (problem, advice string) {
	var missing *clib.NotFoundError
	if !errors.As(err, &missing) {
		return err.Error(), ""
	}
	problem, advice = missing.Describe()
	if len(missing.Broken) > 0 {
		return problem + ": " + advice, ""
	}
	return problem, advice
}

// formatError formats err in one line, even if it joins several errors.
func formatError(err error) string {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var words []string
		for _, e := range many.Unwrap() {
			words = append(words, formatError(e))
		}
		return strings.Join(words, "; ")
	}
	var missing *clib.NotFoundError
	if errors.As(err, &missing) {
		problem, advice := missing.Describe()
		return fmt.Sprintf("%s %s: %s", missing.Library, problem, advice)
	}
	return err.Error()
}

func describeCPU() Device {
	host := runs.DescribeHost()
	compute := runtime.GOARCH
	switch {
	case cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3):
		compute = "AVX2+FMA"
	case runtime.GOARCH == "arm64":
		compute = "NEON" // which every such processor has
	}
	return Device{Name: host.CPU, Kind: "cpu", MemoryBytes: host.MemoryBytes, Units: host.Cores, Compute: compute}
}

// deviceRows returns the header, then one row per device.
func (m *Machine) deviceRows() [][]string {
	rows := [][]string{{"device", "name", "memory", "cores or SMs", "compute", "driver"}}
	for _, d := range m.Devices {
		name := d.Kind
		if d.Kind != "cpu" {
			name = fmt.Sprintf("%s:%d", d.Kind, d.Index)
		}
		rows = append(rows, []string{name, d.Name, fmt.Sprintf("%.1f GiB", float64(d.MemoryBytes)/(1<<30)), fmt.Sprint(d.Units), d.Compute, d.Driver})
	}
	return rows
}

// libraryRows returns the header, then one row per library.
func (m *Machine) libraryRows() [][]string {
	rows := [][]string{{"library", "version", "for", "file"}}
	for _, l := range m.Libraries {
		where := l.Path
		if l.Problem != "" {
			where = "not usable"
		}
		rows = append(rows, []string{l.Name, l.Version, l.Use, where})
	}
	return rows
}

// noteLines returns the lines below the tables: why there is no usable GPU, and why an
// installed library cannot be used.
func (m *Machine) noteLines() []string {
	var notes []string
	if m.NoGPU != "" {
		notes = append(notes, "no GPU can be used: "+m.NoGPU)
	}
	for _, l := range m.Libraries {
		if l.Problem != "" && l.Advice == "" && !strings.Contains(m.NoGPU, l.Problem) {
			notes = append(notes, fmt.Sprintf("%s cannot be used: %s", l.Name, l.Problem))
		}
	}
	if m.NoGPU != "" && len(m.Looked) > 0 {
		notes = append(notes, "looked for libraries in "+strings.Join(m.Looked, "; "))
	}
	return notes
}

// String formats the tables as text.
func (m *Machine) String() string {
	var b strings.Builder
	for i, rows := range [][][]string{m.deviceRows(), m.libraryRows()} {
		if i > 0 {
			b.WriteString("\n")
		}
		var table strings.Builder
		w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		for _, r := range rows {
			fmt.Fprintln(w, strings.Join(r, "\t"))
		}
		_ = w.Flush() // never fails for a strings.Builder
		for line := range strings.Lines(table.String()) {
			b.WriteString(strings.TrimRight(line, " \n") + "\n")
		}
	}
	for _, r := range m.noteLines() {
		b.WriteString("\n" + r + "\n")
	}
	return b.String()
}

// HTML formats the tables for a notebook.
func (m *Machine) HTML() string {
	var b strings.Builder
	for _, rows := range [][][]string{m.deviceRows(), m.libraryRows()} {
		b.WriteString("<table>\n")
		for i, r := range rows {
			tag := "td"
			if i == 0 {
				tag = "th"
			}
			b.WriteString("<tr>")
			for _, cell := range r {
				fmt.Fprintf(&b, `<%s style="text-align:left">%s</%s>`, tag, html.EscapeString(cell), tag)
			}
			b.WriteString("</tr>\n")
		}
		b.WriteString("</table>\n")
	}
	for _, r := range m.noteLines() {
		fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(r))
	}
	return b.String()
}
