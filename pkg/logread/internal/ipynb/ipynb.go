// Package ipynb reads the outputs that the cells of a Jupyter notebook contain.
//
// A notebook is one JSON document (nbformat 3 and 4). The text that a cell has written,
// on its streams and as text/plain, goes through the formats of text files in the order
// of the outputs. Each cell is read separately: its runs have the number of the cell in
// their Dir (train.ipynb#cell5), where all cells count from 1, and each problem names the
// cell and the line of its output. Pictures, HTML and the source of the cells are not read.
//
//	{"cells": [
//	  {"cell_type": "code", "execution_count": 3, "source": ["model.fit(…)"], "outputs": [
//	    {"output_type": "stream", "name": "stdout", "text": ["Epoch 1/5\n", "…"]},
//	    {"output_type": "execute_result", "data": {"text/plain": ["<History>"]}}]}],
//	 "nbformat": 4, "nbformat_minor": 5}
package ipynb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
)

// kind is the name of the format in reports. The kind of a run is that of its text.
const kind = "Jupyter notebook"

// Limits for one notebook. Later cells, and the output of a cell after maxCellBytes, are not read.
const (
	maxCells     = 10_000
	maxCellBytes = 64 << 20
	headBytes    = 4096 // by which formats recognize the output of a cell
)

// Format returns the format of notebooks, whose cells are read by the first of the given
// formats that recognizes their output.
func Format(text []record.Format) record.Format {
	return record.Format{
		Name: kind, Recognizes: isNotebook, Document: true,
		Read: func(ctx context.Context, in *record.Input) ([]*record.Part, error) {
			return readNotebook(ctx, in, text)
		},
	}
}

// isNotebook reports whether head begins a JSON object that has cells. Without the
// extension .ipynb, the type of a cell must be there too.
func isNotebook(path string, head []byte) bool {
	if !bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{")) {
		return false
	}
	if filepath.Ext(record.UncompressedName(path)) == ".ipynb" {
		return true
	}
	return bytes.Contains(head, []byte(`"cells"`)) && bytes.Contains(head, []byte(`"cell_type"`))
}

// cell is a cell of a notebook.
type cell struct {
	Outputs []struct {
		Text lines                      `json:"text"` // of a stream; in nbformat 3 also of a result
		Data map[string]json.RawMessage `json:"data"`
	} `json:"outputs"`
	Count *int `json:"execution_count"`
}

// lines is a text that a notebook stores as one string or as a list of lines.
type lines string

// UnmarshalJSON reads a string, or a list of strings.
func (l *lines) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*l = lines(one)
		return nil
	}
	var several []string
	if err := json.Unmarshal(text, &several); err != nil {
		return fmt.Errorf("expected a text or a list of texts, got %.40q", text)
	}
	*l = lines(strings.Join(several, ""))
	return nil
}

// output returns the text that the cell has written.
func (c *cell) output() (text string, err error) {
	var b strings.Builder
	for _, o := range c.Outputs {
		t := o.Text
		if plain, ok := o.Data["text/plain"]; ok && t == "" {
			if err := t.UnmarshalJSON(plain); err != nil {
				return b.String(), err
			}
			t += "\n" // results have no line end
		}
		b.WriteString(string(t))
	}
	return b.String(), nil
}

// reader reads the cells of a notebook.
type reader struct {
	in    *record.Input
	text  []record.Format
	parts []*record.Part
	kinds map[string]bool
	cells int // number of cells so far
}

// readNotebook reads a notebook cell by cell, so that the cells before a damaged one are
// read.
func readNotebook(ctx context.Context, in *record.Input, text []record.Format) ([]*record.Part, error) {
	r := &reader{in: in, text: text, kinds: map[string]bool{}}
	d := json.NewDecoder(in.Reader)
	found, err := r.readObject(ctx, d)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && !isSyntaxError(err):
		return nil, fmt.Errorf("read %s: %w", in.Path, err)
	case err != nil:
		in.AddProblem(0, "the notebook is damaged after %d cells: %v; the cells before are read", r.cells, err)
	case !found:
		return nil, record.ErrUnknownFormat
	}
	if _, after := d.Token(); err == nil && !errors.Is(after, io.EOF) {
		in.AddProblem(0, "the text after the end of the notebook is not read")
	}
	if len(r.parts) == 0 && len(in.Report.Unused) == 0 {
		in.AddProblem(0, "no cell of the notebook has an output that a format recognizes")
	}
	if in.Report.Lines > 0 {
		in.Report.AddAssumption("lines are those of the outputs of all cells")
	}
	if len(r.kinds) > 0 {
		in.Report.Kind = kind + ": " + strings.Join(slices.Sorted(maps.Keys(r.kinds)), ", ")
	}
	return r.parts, nil
}

// isSyntaxError reports whether err shows that the content is not a complete notebook, as
// opposed to a failed read.
func isSyntaxError(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &kind) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, errForm)
}

// errForm is the error of a JSON document that is not a notebook.
var errForm = errors.New("unexpected JSON")

// readObject reads the notebook, or a worksheet of nbformat 3. found reports whether it has
// cells.
func (r *reader) readObject(ctx context.Context, d *json.Decoder) (found bool, err error) {
	if err := expect(d, '{'); err != nil {
		return false, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return found, err
		}
		switch key {
		case "cells":
			found = true
			err = r.readList(d, func() error { return r.readCell(ctx, d) })
		case "worksheets":
			err = r.readList(d, func() error {
				has, err := r.readObject(ctx, d)
				found = found || has
				return err
			})
		default:
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return found, err
		}
	}
	_, err = d.Token()
	return found, err
}

// readList reads a list and calls read for each element.
func (r *reader) readList(d *json.Decoder, read func() error) error {
	if err := expect(d, '['); err != nil {
		return err
	}
	for d.More() {
		if err := read(); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// expect reads a delimiter.
func expect(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err == nil && token != want {
		return fmt.Errorf("%w: expected %v, got %.40v", errForm, want, token)
	}
	return err
}

// readCell reads one cell.
func (r *reader) readCell(ctx context.Context, d *json.Decoder) error {
	var c cell
	if err := d.Decode(&c); err != nil {
		var wrong *json.UnmarshalTypeError
		if !errors.As(err, &wrong) && isSyntaxError(err) || ctx.Err() != nil {
			return err
		}
		r.cells++
		r.in.AddProblem(0, "cell %d: %v", r.cells, err)
		return nil
	}
	r.cells++
	if r.cells == maxCells+1 {
		r.in.AddProblem(0, "the notebook has more than %d cells; the others are not read", maxCells)
	}
	text, err := c.output()
	if err != nil {
		r.in.AddProblem(0, "cell %d: text/plain: %v", r.cells, err)
	}
	if r.cells > maxCells || strings.TrimSpace(text) == "" {
		return nil
	}
	if len(text) > maxCellBytes {
		r.in.AddProblem(0, "cell %d: the output is longer than %d bytes; the rest is not read", r.cells, maxCellBytes)
		text = text[:maxCellBytes]
	}
	return r.readOutput(ctx, text, c.name(r.cells))
}

// name returns the name of the n-th cell in messages.
func (c *cell) name(n int) string {
	if c.Count != nil {
		return fmt.Sprintf("cell %d (In [%d])", n, *c.Count)
	}
	return fmt.Sprintf("cell %d", n)
}

// readOutput reads the output of a cell by the first format that recognizes it.
func (r *reader) readOutput(ctx context.Context, text, name string) error {
	head := []byte(text[:min(len(text), headBytes)])
	for _, f := range r.text {
		if !f.Recognizes(r.in.Path, head) {
			continue
		}
		report := &record.Report{Path: r.in.Path, Kind: f.Name}
		parts, err := f.Read(ctx, &record.Input{Path: r.in.Path, Reader: strings.NewReader(text), Size: int64(len(text)), Report: report, Lines: r.in.Lines})
		if err != nil && !errors.Is(err, record.ErrUnknownFormat) {
			return err
		}
		if len(parts) > 0 {
			r.kinds[report.Kind] = true
			r.in.Report.AddAssumption("%s: %s, %d of %d lines used", name, report.Kind, report.LinesUsed, report.Lines)
		}
		for i, p := range parts {
			p.Run.Dir = r.in.Path + "#cell" + strconv.Itoa(r.cells)
			if i > 0 {
				p.Run.Dir += "." + strconv.Itoa(i+1)
			}
			if p.Run.Kind == "" {
				p.Run.Kind = f.Name
			}
			clearLines(p)
			r.parts = append(r.parts, p)
		}
		for i := range report.Assumed {
			report.Assumed[i] = name + ": " + report.Assumed[i]
		}
		for i, p := range report.Unused {
			if p.Line > 0 {
				report.Unused[i].Reason = fmt.Sprintf("%s, line %d: %s", name, p.Line, p.Reason)
			} else {
				report.Unused[i].Reason = name + ": " + p.Reason
			}
			report.Unused[i].Line = 0
		}
		r.addTemplateUses(report.Templates)
		report.Bytes = 0 // the bytes of the file are counted when they are read
		r.in.Report.Append(report)
		return nil
	}
	return nil
}

// addTemplateUses adds how the user's templates were used in a cell. The lines of the
// cells are counted one after the other.
func (r *reader) addTemplateUses(uses []record.TemplateUse) {
	all := &r.in.Report.Templates
	for i, use := range uses {
		if i == len(*all) {
			*all = append(*all, record.TemplateUse{})
		}
		to := &(*all)[i]
		lines := to.Lines + use.Lines
		if use.NearestLine > 0 && (to.NearestLine == 0 || use.Nearest.Matched > to.Nearest.Matched) {
			*to = use
			to.NearestLine += int(r.in.Report.Lines)
		}
		to.Lines = lines
	}
}

// clearLines removes the numbers of lines from a run, since they are not those of the file.
func clearLines(p *record.Part) {
	p.Line = 0
	for i := range p.Run.Epochs {
		p.Run.Epochs[i].Line = 0
	}
	for i := range p.Run.Trials {
		p.Run.Trials[i].Line = 0
	}
	for i := range p.Run.AllReduces {
		p.Run.AllReduces[i].Line = 0
	}
	for i := range p.Run.OutOfMemory {
		p.Run.OutOfMemory[i].Line = 0
	}
}
