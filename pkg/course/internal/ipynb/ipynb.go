// Package ipynb reads and writes Jupyter notebooks (nbformat 4). It keeps fields that it does not know,
// and writes as Jupyter does: sorted keys, indented by one space.
package ipynb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/wholefile"
)

// Cell types.
const (
	Code     = "code"
	Markdown = "markdown"
)

// Notebook is a notebook in memory; Write saves it.
type Notebook struct {
	Cells    []*Cell
	document map[string]any // without the cells
}

// Cell is a cell of a notebook.
type Cell struct {
	Type    string
	Source  string
	Outputs []Output // of a code cell
	Grading *Grading // metadata of nbgrader; nil if the cell has none
	fields  map[string]any
}

// Output is one item that a code cell has shown.
type Output struct {
	Type      string          `json:"output_type"` // stream, display_data, execute_result or error
	Name      string          `json:"name"`        // of a stream: stdout or stderr
	Text      MultilineString `json:"text"`        // of a stream
	Data      map[string]any  `json:"data"`        // by MIME type
	ErrorName string          `json:"ename"`
	Error     string          `json:"evalue"`
}

// Grading is a cell's nbgrader metadata of schema version 3.
type Grading struct {
	ID       string  `json:"grade_id"`
	Grade    bool    `json:"grade"`    // has points
	Solution bool    `json:"solution"` // the student edits it
	Locked   bool    `json:"locked"`   // the student must not edit it
	Task     bool    `json:"task"`
	Schema   int     `json:"schema_version"`
	Points   float64 `json:"points,omitempty"`
	CellType string  `json:"cell_type,omitempty"`
	Checksum string  `json:"checksum,omitempty"`
}

// MultilineString is a string that nbformat stores as one string or as a list of lines.
type MultilineString string

// UnmarshalJSON implements json.Unmarshaler.
func (t *MultilineString) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = MultilineString(one)
		return nil
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil {
		return errors.New("want text or a list of lines")
	}
	*t = MultilineString(strings.Join(lines, ""))
	return nil
}

// DataText returns the output's data of the given MIME type, or "" if it is not text.
func (o Output) DataText(mime string) string {
	switch v := o.Data[mime].(type) {
	case string:
		return v
	case []any:
		var b strings.Builder
		for _, line := range v {
			s, _ := line.(string)
			b.WriteString(s)
		}
		return b.String()
	}
	return ""
}

// Read reads the notebook at path.
func Read(path string) (*Notebook, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read notebook: %w", err)
	}
	nb, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("read notebook %s: %w", path, err)
	}
	return nb, nil
}

// Parse parses the JSON of a notebook.
func Parse(data []byte) (*Notebook, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // so that numbers in metadata are written as they were read
	nb := &Notebook{}
	if err := d.Decode(&nb.document); err != nil {
		return nil, fmt.Errorf("damaged JSON: %w; open it in Jupyter and save it, or restore a copy from .ipynb_checkpoints", err)
	}
	if v, _ := nb.document["nbformat"].(json.Number); v != "4" {
		return nil, fmt.Errorf("got nbformat %q, want 4: save it with a current Jupyter", v)
	}
	cells, ok := nb.document["cells"].([]any)
	if !ok {
		return nil, errors.New("no list of cells: this is not a notebook")
	}
	delete(nb.document, "cells")
	for i, c := range cells {
		fields, ok := c.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("cell %d: got %T, want an object", i+1, c)
		}
		cell, err := newCell(fields)
		if err != nil {
			return nil, fmt.Errorf("cell %d: %w", i+1, err)
		}
		nb.Cells = append(nb.Cells, cell)
	}
	return nb, nil
}

func newCell(fields map[string]any) (*Cell, error) {
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	var c struct {
		Type     string          `json:"cell_type"`
		Source   MultilineString `json:"source"`
		Metadata struct {
			Grading *Grading `json:"nbgrader"`
		} `json:"metadata"`
		Outputs []Output `json:"outputs"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	return &Cell{Type: c.Type, Source: string(c.Source), Outputs: c.Outputs, Grading: c.Metadata.Grading, fields: fields}, nil
}

// ClearOutputs removes the outputs and the execution count of a code cell.
func (c *Cell) ClearOutputs() {
	if c.Type == Code {
		c.Outputs = nil
		c.fields["outputs"], c.fields["execution_count"] = []any{}, nil
	}
}

// SetOutputs sets the execution count and the outputs of a code cell. outputs have the form of nbformat.
func (c *Cell) SetOutputs(outputs []map[string]any, count int) error {
	c.fields["outputs"], c.fields["execution_count"] = outputs, json.Number(strconv.Itoa(count))
	changed, err := newCell(c.fields)
	if err != nil {
		return err
	}
	c.Outputs = changed.Outputs
	return nil
}

// ExecutionCount returns the number that Jupyter shows beside the cell, or 0 if the cell has
// not run.
func (c *Cell) ExecutionCount() int {
	n, _ := c.fields["execution_count"].(json.Number)
	v, _ := n.Int64()
	return int(v)
}

// DeleteMetadata deletes a key of the notebook's metadata.
func (n *Notebook) DeleteMetadata(key string) {
	if m, ok := n.document["metadata"].(map[string]any); ok {
		delete(m, key)
	}
}

// Write writes the notebook to path, with the current Type, Source and Grading of each cell.
func (n *Notebook) Write(path string) error {
	cells := make([]any, len(n.Cells))
	for i, c := range n.Cells {
		c.fields["cell_type"], c.fields["source"] = c.Type, splitLines(c.Source)
		metadata, _ := c.fields["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
		}
		if c.Grading != nil {
			metadata["nbgrader"] = c.Grading.fields()
		}
		c.fields["metadata"] = metadata
		cells[i] = c.fields
	}
	n.document["cells"] = cells
	defer delete(n.document, "cells")
	return wholefile.Write(path, 0o644, func(f *os.File) error {
		e := json.NewEncoder(f)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		return e.Encode(n.document)
	})
}

func (g Grading) fields() map[string]any {
	f := map[string]any{
		"grade_id": g.ID, "grade": g.Grade, "solution": g.Solution, "locked": g.Locked, "task": g.Task, "schema_version": g.Schema,
	}
	if g.Grade {
		f["points"] = g.Points
	}
	if g.CellType != "" {
		f["cell_type"], f["checksum"] = g.CellType, g.Checksum
	}
	return f
}

// splitLines splits text after each newline, as nbformat stores it.
func splitLines(text string) []string {
	all := strings.SplitAfter(text, "\n")
	return slices.DeleteFunc(all, func(line string) bool { return line == "" })
}
