package clean

import (
	"encoding/csv"
	"strings"
	"testing"
)

// TestCell: what a spreadsheet may take for a formula gets an apostrophe, and every text reads back
// equal.
func TestCell(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		"ddp":                  "ddp",
		"4":                    "4",
		"-4":                   "-4",
		"-1.5e-07":             "-1.5e-07",
		"-Inf":                 "-Inf",
		"=cmd|' /C calc'!A0":   "'=cmd|' /C calc'!A0",
		"+1":                   "'+1",
		"@SUM(A1)":             "'@SUM(A1)",
		"\t=1":                 "'\t=1",
		"\r=1":                 "'\r=1",
		"\n=1":                 "'\n=1",
		"-":                    "'-",
		"-1+cmd|x":             "'-1+cmd|x",
		"-0x1p-2":              "'-0x1p-2",
		"--n 4":                "'--n 4",
		"'=1":                  "''=1",
		"''-x":                 "'''-x",
		"'quoted'":             "'quoted'",
		"'":                    "'",
		"'-4":                  "'-4",
		"a=1":                  "a=1",
		" =1":                  " =1",
		"with, comma\n\"and\"": "with, comma\n\"and\"",
	} {
		if got := EscapeCSVCell(text); got != want {
			t.Errorf("Cell(%q) is %q, want %q", text, got, want)
		}
		if got := UnescapeCSVCell(EscapeCSVCell(text)); got != text {
			t.Errorf("ParseCell(Cell(%q)) is %q", text, got)
		}
	}
}

// TestCSVWriter: a line is written as CSV, and the caller's cells are not changed.
func TestCSVWriter(t *testing.T) {
	var b strings.Builder
	w, cells := NewCSVWriter(&b), []string{"=1", "a,b", "-2"}
	if err := w.Write(cells); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	if want := "'=1,\"a,b\",-2\n"; b.String() != want || cells[0] != "=1" {
		t.Errorf("got %q and the cells %q, want %q", b.String(), cells, want)
	}
	got, err := csv.NewReader(strings.NewReader(b.String())).Read()
	if err != nil || UnescapeCSVCell(got[0]) != "=1" {
		t.Errorf("got %q, %v", got, err)
	}
}
