package docs

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// sample is a package with one of everything that has a doc comment.
const sample = `// Package sample is a sample.
package sample

// Modes of work.
const (
	Fast = 1 // Fast is quick.
	Slow = 2
)

// Options says how.
type Options struct {
	// Threads is how many, at least 1.
	Threads int
	Name    string // shown to people
	private int
}

// New makes Options.
func New(threads int) *Options { return nil }

// Count counts.
func (o *Options) Count(names ...string) (n int, err error) { return 0, nil }

// A Store keeps.
type Store interface {
	// Put puts.
	Put(name string) error
}

func hidden() {}
`

func TestReadAndTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sample.go")
	if err := os.WriteFile(file, []byte(sample), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := Read("example.org/sample", []string{file})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]Entry{
		"":                {Decl: `package sample // import "example.org/sample"`, Doc: "Package sample is a sample."},
		"Fast":            {Decl: "const Fast = 1", Doc: "Fast is quick."},
		"Slow":            {Decl: "const Slow = 2", Doc: "Modes of work."},
		"New":             {Decl: "func New(threads int) *Options", Doc: "New makes Options."},
		"Options.Count":   {Decl: "func (o *Options) Count(names ...string) (n int, err error)", Doc: "Count counts."},
		"Options.Threads": {Decl: "Threads int", Doc: "Threads is how many, at least 1."},
		"Options.Name":    {Decl: "Name string", Doc: "shown to people"},
		"Store.Put":       {Decl: "func (Store) Put(name string) error", Doc: "Put puts."},
	} {
		if p[key] != want {
			t.Errorf("%q is %+v, want %+v", key, p[key], want)
		}
	}
	if o := p["Options"]; strings.Contains(o.Decl, "at least") || !strings.Contains(o.Full, "at least 1") || !strings.Contains(o.Decl, "Threads int") {
		t.Errorf("the type is %+v", o)
	}
	if _, ok := p["hidden"]; ok {
		t.Error("a function that is not exported is in the table")
	}
	if _, err := Read("example.org/none", []string{"no-such-file.go"}); err == nil || !strings.Contains(err.Error(), "read docs of example.org/none") {
		t.Errorf("a file that is not there gives %v", err)
	}

	data, err := Encode(map[string]Package{"example.org/sample": p, "b": {"": {Doc: "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	table, err := Open(data)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := table.Package("example.org/sample"); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("the table gives back %v, %v, want %v", got, err, p)
	}
	if got, err := table.Package("none"); err != nil || got != nil {
		t.Errorf("a package that is not there gives %v, %v", got, err)
	}
	if got, want := p.Members("Options"), []string{"Options.Count", "Options.Name", "Options.Threads"}; !reflect.DeepEqual(got, want) {
		t.Errorf("members are %v, want %v", got, want)
	}
	if _, err := Open([]byte("no zip")); err == nil {
		t.Error("garbage opens")
	}
}
