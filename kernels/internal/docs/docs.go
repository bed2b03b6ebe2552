// Package docs is the table of declarations and doc comments that the kernel
// shows for what a cell can import. The build of the kernel makes it from the
// packages' sources (Read, Encode), the kernel carries it compressed and opens
// what it is asked for (Open, Package), so that a start pays nothing for it.
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

// An Entry is what is written about one name.
type Entry struct {
	Decl string `json:"d,omitempty"` // its declaration, without comments inside
	Full string `json:"f,omitempty"` // the declaration with them, where it has some
	Doc  string `json:"t,omitempty"` // its doc comment
}

// A Package maps the names of a package to what is written about them: "" is
// the package itself, "Name" an object of it, "Type.Name" a field or a method.
type Package map[string]Entry

// Encode writes the table of packages, by import path.
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

// A Table reads what Encode wrote. The zero Table is empty.
type Table struct{ zip *zip.Reader }

// Open reads the index of a table and nothing else. The table reads from data.
func Open(data []byte) (*Table, error) {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("open docs: %w", err)
	}
	return &Table{z}, nil
}

// Package returns what is written about a package; nil, without an error, if
// the table does not have it.
func (t *Table) Package(path string) (Package, error) {
	if t.zip == nil {
		return nil, nil
	}
	// Not zip.Reader.Open, which would read the whole index into a tree.
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

// Members lists the fields and methods of a type that the package writes about.
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
