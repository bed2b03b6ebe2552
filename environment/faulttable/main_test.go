package main

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestReadRows(t *testing.T) {
	in := strings.Join([]string{
		`{"Action":"attr","Package":"p","Test":"TestA","Key":"fault","Value":"disk full"}`,
		`{"Action":"attr","Package":"p","Test":"TestA","Key":"outcome","Value":"an error"}`,
		`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.5}`,
		`{"Action":"attr","Package":"p","Test":"TestB/one","Key":"fault","Value":"kill"}`,
		`{"Action":"output","Package":"p","Test":"TestB/one","Output":"    b_test.go:3: it hangs\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestB/one","Elapsed":2}`,
		`{"Action":"fail","Package":"p","Test":"TestB","Elapsed":2}`,
		`{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:3: no root here\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestC","Elapsed":0}`,
		`{"Action":"attr","Package":"p","Test":"TestD","Key":"fault","Value":"crash"}`,
		`{"Action":"pass","Package":"p","Test":"TestOther","Elapsed":0}`,
	}, "\n")
	rows, err := readRows(bufio.NewReader(strings.NewReader(in)), []string{"TestA", "TestB", "TestC", "TestD", "TestE"})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ test, fault, outcome, verdict string }{
		{"p.TestA", "disk full", "an error", verdictGood},
		{"p.TestB/one", "kill", "b_test.go:3: it hangs", verdictBad},
		{"p.TestC", "TestC", "c_test.go:3: no root here", verdictNone},
		{"p.TestD", "crash", "the test did not end: ", verdictBad},
		{"TestE", "TestE", "the test did not run; does it build?", verdictBad},
	}
	if len(rows) != len(want) {
		t.Fatalf("got %d rows, want %d: %+v", len(rows), len(want), rows)
	}
	for i, w := range want {
		r := rows[i]
		if r.test != w.test || r.fault != w.fault || r.outcome != w.outcome || r.verdict() != w.verdict {
			t.Errorf("row %d: got %+v (%s), want %+v", i, r, r.verdict(), w)
		}
	}
	if err := checkVerdicts(rows); err == nil || !strings.Contains(err.Error(), "3 of 5") {
		t.Errorf("failed: got %v, want 3 of 5 rows", err)
	}
}

func TestFindTests(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	source := `package p
import "testing"
func TestPlain(t *testing.T) { t.Attr("other", "x") }
func TestFault(t *testing.T) { t.Attr("fault", "disk full") }
func TestNested(t *testing.T) { t.Run("x", func(t *testing.T) { t.Attr("fault", "kill") }) }
func helper(t *testing.T) { t.Attr("fault", "kill") }
`
	for _, folder := range []string{"p", "p/testdata", ".cache"} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "p_test.go"), []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found, err := findTests(".", regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || strings.Join(found["./p"], " ") != "TestFault TestNested" {
		t.Errorf("got %v, want TestFault and TestNested of ./p", found)
	}
}

func TestCellKeepsTheTable(t *testing.T) {
	if got, want := formatCell("a | b\n<c> of /tmp/TestX_y.z123/001/run/a.csv in /tmp/TestX123/002: full"), `a \| b &lt;c> of run/a.csv in /tmp: full`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTableIsComplete: every test of the repository that injects a fault has a
// row in environment/faults.md, and no row is bad.
func TestTableIsComplete(t *testing.T) {
	table, err := os.ReadFile("../faults.md")
	if err != nil {
		t.Fatal(err)
	}
	found, err := findTests("../..", regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 10 {
		t.Fatalf("faults are injected in %d folders only; the search is broken", len(found))
	}
	for folder, names := range found {
		for _, name := range names {
			if !regexp.MustCompile(`\.` + name + "[`/]").Match(table) {
				t.Errorf("%s of %s has no row in environment/faults.md; run environment/faults", name, folder)
			}
		}
	}
	if strings.Contains(string(table), "| "+verdictBad+" |") {
		t.Error("environment/faults.md has a bad row")
	}
}
