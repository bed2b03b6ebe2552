package figure

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/go-gota/gota/series"

	"lockstep/pkg/internal/wholefile"
)

// Formats are the extensions that Save knows: pictures (svg, pdf, png), the
// numbers (csv), the caption (txt) and a table for LaTeX (tex).
func Formats() []string { return []string{"svg", "pdf", "png", "csv", "txt", "tex"} }

// Files are what Save writes for a path: the file itself, or where it has no
// extension one in each of Formats.
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

// extension is that of a path if it is one of Formats, or looks like another
// one; a name such as "batch 0.5" has none.
func extension(path string) string {
	ext := strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), ".")
	if !regexp.MustCompile(`^[a-z][a-z0-9]{1,4}$`).MatchString(ext) {
		return ""
	}
	return ext
}

// Save writes the figure to a file, as its extension says: .png, .svg or .pdf
// the picture, .csv the numbers that are drawn, .txt the caption, .tex a table
// for LaTeX. A path without extension writes all of them. Missing folders are
// made. Each file is there whole or not at all. The files of a figure are the
// same, byte for byte, each time.
func (f *Figure) Save(path string) error {
	for _, file := range f.Files(path) {
		b, err := f.encode(extension(file))
		if err != nil {
			return fmt.Errorf("save figure %s: %w", file, err)
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

// encode is the figure in a format.
func (f *Figure) encode(format string) ([]byte, error) {
	var b bytes.Buffer
	switch format {
	case "svg":
		if err := f.write(&b, format); err != nil { // SVG() would write the error into the picture
			return nil, err
		}
		return []byte(`<?xml version="1.0"?>` + "\n" + inPage(b.String())), nil
	case "png":
		err := f.write(&b, format)
		return b.Bytes(), err
	case "pdf":
		if err := f.write(&b, format); err != nil {
			return nil, err
		}
		return undated(b.Bytes()), nil
	case "csv":
		if f.filled(); f.table.Err != nil || f.table.Ncol() == 0 {
			return nil, errors.New("it has no table")
		}
		return []byte(f.csv()), nil
	case "txt":
		return []byte(f.caption + "\n"), nil
	case "tex":
		return []byte(f.TeX()), nil
	}
	formats := Formats()
	last := len(formats) - 1
	return nil, fmt.Errorf("%q is no format of a figure: end the name in .%s or .%s, or in nothing for all of them", format, strings.Join(formats[:last], ", ."), formats[last])
}

// undated takes the dates out of a PDF, in place, because its table of
// contents counts bytes.
func undated(pdf []byte) []byte {
	const never = "19700101000000"
	return regexp.MustCompile(`/(CreationDate|ModDate) \(D:\d{14}`).ReplaceAllFunc(pdf, func(date []byte) []byte {
		return append(slices.Clone(date[:len(date)-len(never)]), never...)
	})
}

// csv is the table as text; an empty cell is what was not measured, as in the
// tables of package scaling.
func (f *Figure) csv() string {
	var b strings.Builder
	names := f.table.Names()
	b.WriteString(csvLine(names))
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
				cells[i] = exact(e.Float())
			default:
				cells[i] = e.String()
			}
		}
		b.WriteString(csvLine(cells))
	}
	return b.String()
}
