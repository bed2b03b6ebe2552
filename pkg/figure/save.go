package figure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/go-gota/gota/series"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/wholefile"
)

// Formats returns the extensions that Save supports: images (svg, pdf, png), the numbers (csv), the
// caption (txt) and a table for LaTeX (tex).
func Formats() []string { return []string{"svg", "pdf", "png", "csv", "txt", "tex"} }

// Files returns the files that Save writes for a path: the path itself, or one per format if it has
// no extension.
func (f *Figure) Files(path string) []string {
	if extension(path) != "" {
		return []string{path}
	}
	files := make([]string, 0, len(Formats()))
	for _, format := range Formats() {
		files = append(files, path+"."+format)
	}
	return files
}

// extension returns the lower-case extension of a path without its dot, or "" if there is none or
// it does not look like one, as in "batch 0.5".
func extension(path string) string {
	ext := strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), ".")
	if !regexp.MustCompile(`^[a-z][a-z0-9]{1,4}$`).MatchString(ext) {
		return ""
	}
	return ext
}

// Save writes the figure to a file in the format of its extension: .png, .svg or .pdf for the
// image, .csv for the numbers, .txt for the caption, or .tex for a LaTeX table. Without an
// extension, it writes a file in each format. It creates missing folders. Each file is written
// completely or not at all. Saving a figure again writes the same bytes.
func (f *Figure) Save(path string) error {
	for _, file := range f.Files(path) {
		b, err := f.encode(extension(file))
		if err != nil {
			return fmt.Errorf("save figure %s: %w", file, err)
		}
		if err := wholefile.CheckOverwrite(file); err != nil {
			return fmt.Errorf("save figure %s: %w", f.name, err)
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("save figure %s: %w", f.name, err)
		}
		if err := wholefile.WriteBytes(file, b, 0o644); err != nil {
			return fmt.Errorf("save figure %s: %w", f.name, err)
		}
	}
	return nil
}

func (f *Figure) encode(format string) ([]byte, error) {
	var b bytes.Buffer
	switch format {
	case "svg":
		if err := f.writeImage(&b, format); err != nil { // SVG would draw the error's text
			return nil, err
		}
		return []byte(`<?xml version="1.0"?>` + "\n" + withoutXMLDeclaration(b.String())), nil
	case "png":
		err := f.writeImage(&b, format)
		return b.Bytes(), err
	case "pdf":
		if err := f.writeImage(&b, format); err != nil {
			return nil, err
		}
		return fixPDFDates(b.Bytes()), nil
	case "csv":
		if f.computeTableOnce(); f.table.Err != nil || f.table.Ncol() == 0 {
			return nil, errors.New("the figure has no table")
		}
		err := f.writeCSV(&b)
		return b.Bytes(), err
	case "txt":
		return []byte(f.String() + "\n"), nil
	case "tex":
		return []byte(f.TeX()), nil
	}
	formats := Formats()
	last := len(formats) - 1
	return nil, fmt.Errorf("unknown format %q: use the extension .%s or .%s, or none for all of them", format, strings.Join(formats[:last], ", ."), formats[last])
}

// fixPDFDates replaces the dates in a PDF by a fixed date of the same length. The length must not
// change, because the file's cross-reference table contains byte offsets.
func fixPDFDates(pdf []byte) []byte {
	const never = "19700101000000"
	return regexp.MustCompile(`/(CreationDate|ModDate) \(D:\d{14}`).ReplaceAllFunc(pdf, func(date []byte) []byte {
		return append(slices.Clone(date[:len(date)-len(never)]), never...)
	})
}

// writeCSV writes the table as CSV. Cells of values that were not measured are empty.
func (f *Figure) writeCSV(to io.Writer) error {
	w := clean.NewCSVWriter(to)
	names := f.table.Names()
	err := w.Write(names)
	columns := make([]series.Series, len(names))
	for i, name := range names {
		columns[i] = f.table.Col(name)
	}
	for row := range f.table.Nrow() {
		cells := make([]string, len(names))
		for i, c := range columns {
			e := c.Elem(row)
			switch {
			case c.Type() == series.Float && math.IsNaN(e.Float()):
			case c.Type() == series.Float:
				cells[i] = clean.FormatNumber(e.Float())
			default:
				cells[i] = e.String()
			}
		}
		err = errors.Join(err, w.Write(cells))
	}
	w.Flush()
	return errors.Join(err, w.Error())
}
