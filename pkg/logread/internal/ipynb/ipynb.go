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
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// notebookKind is the name of the notebook format in reports. The kind of a run is the kind of the
// text in its cell.
const notebookKind = "Jupyter notebook"

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
		Name: notebookKind, Recognizes: isNotebook, Document: true,
		Read: func(ctx context.Context, in *record.Input) ([]*record.Part, error) {
			return readNotebook(ctx, in, text)
		},
	}
}

// isNotebook reports whether head begins a JSON object with cells. Unless path has the
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

// maxNotebookBytes is the maximum length in bytes of the JSON of a cell, with its pictures, and of other values.
const maxNotebookBytes = 256 << 20

type reader struct {
	in    *record.Input
	json  *scan.JSONReader
	text  []record.Format
	parts []*record.Part
	kinds map[string]bool
	cells int  // number of cells so far
	found bool // the notebook has a list of cells
}

// readNotebook reads cell by cell, so that the cells before a damaged one are read.
func readNotebook(ctx context.Context, in *record.Input, text []record.Format) ([]*record.Part, error) {
	r := &reader{in: in, json: scan.NewJSONReader(in.Reader), text: text, kinds: map[string]bool{}}
	if r.json.NextNonSpace() != '{' {
		return nil, record.ErrUnknownFormat
	}
	err := r.readObject(ctx, true)
	switch {
	case r.json.Err() != nil:
		return nil, fmt.Errorf("read %s: %w", in.Path, r.json.Err())
	case err != nil:
		in.AddProblem(0, "the notebook is damaged after %d cells: %v; the cells before are read", r.cells, err)
	case !r.found:
		return nil, record.ErrUnknownFormat
	case r.json.NextNonSpace() != 0:
		in.AddProblem(0, "the text after the end of the notebook is not read")
	}
	if len(r.parts) == 0 && len(in.Report.Unused) == 0 {
		in.AddProblem(0, "no cell of the notebook has an output that a format recognizes")
	}
	if in.Report.Lines > 0 {
		in.Report.AddAssumption("lines are those of the outputs of all cells")
	}
	if len(r.kinds) > 0 {
		in.Report.Kind = notebookKind + ": " + strings.Join(slices.Sorted(maps.Keys(r.kinds)), ", ")
	}
	return r.parts, nil
}

// readObject reads the rest of the notebook, or of a worksheet of nbformat 3.
func (r *reader) readObject(ctx context.Context, isNotebook bool) error {
	return r.json.ReadObject(func(key string, c byte) error {
		switch {
		case key == "cells" && c == '[':
			r.found = true
			r.json.NextNonSpace()
			return r.json.ReadList(func(c byte) error { return r.readCell(ctx, c) })
		case key == "worksheets" && c == '[' && isNotebook:
			r.json.NextNonSpace()
			return r.json.ReadList(func(c byte) error {
				if c != '{' {
					return fmt.Errorf("expected a worksheet, got %q", c)
				}
				r.json.NextNonSpace()
				return r.readObject(ctx, false)
			})
		}
		_, err := r.json.ReadValue(maxNotebookBytes)
		return err
	})
}

func (r *reader) readCell(ctx context.Context, c byte) error {
	if c != '{' {
		return fmt.Errorf("expected a cell, got %q", c)
	}
	text, err := r.json.ReadValue(maxNotebookBytes)
	if err != nil {
		return err
	}
	r.cells++
	name, output := fmt.Sprintf("cell %d", r.cells), []byte(nil)
	cell := scan.ObjectIterator{Text: text}
	for key, value := range cell.Members() {
		switch string(key) {
		case "execution_count":
			if n, ok := scan.ParseJSONFloat(value); ok {
				name += fmt.Sprintf(" (In [%.0f])", n)
			}
		case "outputs":
			for o := range scan.JSONElements(value) {
				output = r.appendOutput(output, o)
			}
		}
	}
	if cell.Bad {
		return errors.New("a cell is malformed")
	}
	if r.cells == maxCells+1 {
		r.in.AddProblem(0, "the notebook has more than %d cells; the others are not read", maxCells)
	}
	if r.cells > maxCells || len(bytes.TrimSpace(output)) == 0 {
		return nil
	}
	if len(output) > maxCellBytes {
		r.in.AddProblem(0, "cell %d: the output is longer than %d bytes; the rest is not read", r.cells, maxCellBytes)
		output = output[:maxCellBytes]
	}
	return r.readOutput(ctx, output, name)
}

// appendOutput appends the text of a cell's output: a stream's or else a result's.
func (r *reader) appendOutput(b, output []byte) []byte {
	var stream, result []byte
	o := scan.ObjectIterator{Text: output}
	for key, value := range o.Members() {
		switch string(key) {
		case "text": // in nbformat 3 also of a result
			stream = r.appendText(stream, value)
		case "data":
			data := scan.ObjectIterator{Text: value}
			for kind, value := range data.Members() {
				if string(kind) == "text/plain" {
					result = append(r.appendText(result, value), '\n') // results have no line end
				}
			}
		}
	}
	if len(stream) > 0 {
		result = stream
	}
	return append(b, result...)
}

// appendText appends a text, which a notebook stores as one string or as a list of lines.
func (r *reader) appendText(b, value []byte) []byte {
	lines := slices.Values([][]byte{value})
	if value[0] == '[' {
		lines = scan.JSONElements(value)
	}
	for line := range lines {
		if line[0] != '"' {
			r.in.AddProblem(0, "cell %d: expected a text or a list of texts, got %.40q", r.cells, line)
			continue
		}
		b = append(b, scan.DecodeJSONString(scan.UnquoteJSON(line))...)
	}
	return b
}

func (r *reader) readOutput(ctx context.Context, text []byte, name string) error {
	head := text[:min(len(text), headBytes)]
	for _, f := range r.text {
		if !f.Recognizes(r.in.Path, head) {
			continue
		}
		report := &record.Report{Path: r.in.Path, Kind: f.Name}
		parts, err := f.Read(ctx, &record.Input{Path: r.in.Path, Reader: bytes.NewReader(text), Size: int64(len(text)), Report: report, Lines: r.in.Lines})
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
			p.Run.Kind = cmp.Or(p.Run.Kind, f.Name)
			clearLineNumbers(p)
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

// addTemplateUses adds how the user's templates were used in a cell. The line numbers of the
// cells follow each other.
func (r *reader) addTemplateUses(uses []record.TemplateUse) {
	all := &r.in.Report.Templates
	for i, use := range uses {
		if i == len(*all) {
			*all = append(*all, record.TemplateUse{})
		}
		(*all)[i].Add(use, int(r.in.Report.Lines))
	}
}

// clearLineNumbers removes the line numbers from a run, since they refer to a cell and not to the
// file.
func clearLineNumbers(p *record.Part) {
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
