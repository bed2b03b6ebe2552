// Package docs stores the declarations and doc comments of the packages that a cell can import. The build of
// the kernel creates a table from their sources (Read, Encode). The kernel embeds it, and to start fast
// decompresses a package only when it is needed (Open, Package).
package docs

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An Entry is the documentation of one name of a package.
type Entry struct {
	Decl string `json:"d,omitempty"` // the declaration without the comments inside
	Full string `json:"f,omitempty"` // the declaration with the comments inside, if it has any
	Doc  string `json:"t,omitempty"` // the doc comment
}

// A Package maps names to their documentation: "" for the package itself, "Name" for an object, and
// "Type.Name" for a field or method.
type Package map[string]Entry

// Encode returns the compressed table of packages, whose keys are import paths.
func Encode(packages map[string]Package) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, path := range slices.Sorted(maps.Keys(packages)) {
		w, err := z.Create(path)
		if err != nil {
			return nil, fmt.Errorf("write docs of %s: %w", path, err)
		}
		if err := json.NewEncoder(w).Encode(packages[path]); err != nil {
			return nil, fmt.Errorf("write docs of %s: %w", path, err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("write docs: %w", err)
	}
	return b.Bytes(), nil
}

// A Table looks up documentation in Encode's output. The zero Table is empty.
type Table struct{ zip *zip.Reader }

// Open opens a table that Encode has written. It reads only the index; the Table refers to data.
func Open(data []byte) (*Table, error) {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("open docs: %w", err)
	}
	return &Table{z}, nil
}

// Package returns the documentation of a package, or nil without an error if the table does not contain it.
func (t *Table) Package(path string) (Package, error) {
	if t.zip == nil {
		return nil, nil
	}
	// zip.Reader.Open is not used because it would build a tree of the complete index.
	i := slices.IndexFunc(t.zip.File, func(f *zip.File) bool { return f.Name == path })
	if i < 0 {
		return nil, nil
	}
	r, err := t.zip.File[i].Open()
	if err != nil {
		return nil, fmt.Errorf("read docs of %s: %w", path, err)
	}
	defer r.Close() // only read from
	var p Package
	if err := json.NewDecoder(r).Decode(&p); err != nil {
		return nil, fmt.Errorf("read docs of %s: %w", path, err)
	}
	return p, nil
}

// Members returns the names of the documented fields and methods of a type.
func (p Package) Members(name string) []string {
	var list []string
	for key := range p {
		if strings.HasPrefix(key, name+".") {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return list
}
