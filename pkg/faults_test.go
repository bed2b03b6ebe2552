package pkg_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFaultsNameTheirTests checks that each row of environment/faults.md ends with tests, and
// that these exist.
func TestFaultsNameTheirTests(t *testing.T) {
	text, err := os.ReadFile("../environment/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("^\\| .+ \\| .+ \\| `[^|]+` \\|$")
	test := regexp.MustCompile("`([a-z0-9/]+)\\.(Test\\w+)`")
	rows := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || line == "| fault | what happens | test |" {
			continue
		}
		if rows++; !row.MatchString(line) {
			t.Errorf("got row %q, want | fault | what happens | `folder.TestName` |", line)
			continue
		}
		cells := strings.Split(strings.TrimSuffix(line, " |"), " | ")
		for name := range strings.SplitSeq(cells[len(cells)-1], ", ") {
			m := test.FindStringSubmatch(name)
			if m == nil {
				t.Errorf("%s: got %s, want `folder.TestName`", cells[0], name)
				continue
			}
			files, err := filepath.Glob(filepath.Join("..", m[1], "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, file := range files {
				source, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				found = found || strings.Contains(string(source), "\nfunc "+m[2]+"(t *testing.T)")
			}
			if !found {
				t.Errorf("%s: no test %s in the folder %s", cells[0], m[2], m[1])
			}
		}
	}
	if rows < 50 {
		t.Errorf("found %d rows, want at least 50: has the form of the tables changed?", rows)
	}
}
