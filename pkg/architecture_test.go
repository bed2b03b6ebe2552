// Package pkg_test keeps the plan of the house: which package may import which,
// and what may stand in the project's files.
package pkg_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// floors is the house, from the ground up. A room is a package with all that
// lies below it (engine holds engine/cpu), and imports only rooms of lower
// floors.
var floors = [][]string{
	0: {"notebook", "runs", "metric", "optim", "weights", "internal/clib", "internal/strictyaml"},
	1: {"internal/device", "nn", "logread", "monitor", "nvrtc"},
	2: {"data", "collective", "model", "internal/plan", "scaling"},
	3: {"engine", "figure", "simulate"},
	4: {"strategy", "report"},
	5: {"train"},
	6: {"launch"},
	7: {"course", "board", "bench"},
	8: {"cmd/lockstep"},
}

// cellar is what every package may import and what imports none: constants of a
// build, names that were misspelled, numbers in sentences, files written whole,
// files that may be opened, signals and time-outs, text that may be
// shown, encodings of text.
var cellar = []string{"internal/buildid", "internal/nearest", "internal/english", "internal/wholefile", "internal/safeopen", "internal/process", "internal/clean", "internal/plaintext"}

// The two flows meet in runs; what belongs to one never imports the other.
var (
	training = []string{
		"optim", "weights", "internal/device", "nn", "data", "collective", "model", "internal/plan",
		"engine", "strategy", "train",
	}
	analysis = []string{"logread", "scaling", "figure", "report"}
)

const (
	module  = "lockstep"
	pkgPath = module + "/pkg/"
)

// listed is what go list says of a package.
type listed struct {
	ImportPath string
	Imports    []string
}

// goList describes every package below pkg/, for the processors whose files
// differ.
func goList(t *testing.T) []listed {
	t.Helper()
	var all []listed
	for _, arch := range []string{"amd64", "arm64"} {
		cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, stderr.String())
		}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var p listed
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("read go list: %v", err)
			}
			all = append(all, p)
		}
	}
	return all
}

// roomOf finds the room and the floor of an import path below pkg/.
func roomOf(path string) (room string, floor int, ok bool) {
	rest, below := strings.CutPrefix(path, pkgPath)
	if !below {
		return "", 0, false
	}
	if slices.Contains(cellar, rest) {
		return rest, -1, true
	}
	for floor, rooms := range floors {
		for _, room := range rooms {
			if rest == room || strings.HasPrefix(rest, room+"/") {
				return room, floor, true
			}
		}
	}
	return "", 0, false
}

// broken says what is wrong with one import, or nothing.
func broken(from, to string) string {
	// The command alone reaches into kernels/: it installs the kernelspec.
	room, floor, ok := roomOf(from)
	switch {
	case !ok:
		return fmt.Sprintf("%s stands on no floor: add it to the table in pkg/architecture_test.go", from)
	case strings.HasPrefix(to, module+"/") && !strings.HasPrefix(to, pkgPath):
		if room == "cmd/lockstep" && strings.HasPrefix(to, module+"/kernels/") {
			return ""
		}
		return fmt.Sprintf("%s imports %s, which is above all floors", from, to)
	case !strings.HasPrefix(to, pkgPath):
		return ""
	}
	toRoom, toFloor, ok := roomOf(to)
	switch {
	case !ok:
		return fmt.Sprintf("%s stands on no floor: add it to the table in pkg/architecture_test.go", to)
	case toRoom == room:
		return ""
	case toFloor >= floor:
		return fmt.Sprintf("%s (floor %d) imports %s (floor %d); a package imports only from lower floors", from, floor, to, toFloor)
	case slices.Contains(training, room) && slices.Contains(analysis, toRoom):
		return fmt.Sprintf("%s trains and imports %s, which analyses; they meet in runs", from, to)
	case slices.Contains(analysis, room) && slices.Contains(training, toRoom):
		return fmt.Sprintf("%s analyses and imports %s, which trains; they meet in runs", from, to)
	}
	return ""
}

func TestFloors(t *testing.T) {
	packages := goList(t)
	if len(packages) == 0 {
		t.Fatal("go list found no package")
	}
	said := map[string]bool{}
	for _, p := range packages {
		if p.ImportPath == strings.TrimSuffix(pkgPath, "/") {
			continue // this test
		}
		for _, to := range append([]string{""}, p.Imports...) {
			if reason := broken(p.ImportPath, to); reason != "" && !said[reason] {
				said[reason] = true
				t.Error(reason)
			}
		}
		for _, name := range strings.Split(p.ImportPath, "/") {
			if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "misc"}, name) {
				t.Errorf("%s: a package is a noun that its user says, not %q", p.ImportPath, name)
			}
		}
	}
}

// TestFloorsRefuse shows that the rules of broken can fail.
func TestFloorsRefuse(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"engine/cpu", "engine", ""},
		{"engine", "internal/plan", ""},
		{"notebook", "internal/buildid", ""},
		{"internal/buildid", "notebook", "lower floors"},
		{"launch", "figure", ""},
		{"runs", "train", "lower floors"},
		{"data", "scaling", "lower floors"}, // the same floor is not lower
		{"figure", "nn", "they meet in runs"},
		{"train", "scaling", "they meet in runs"},
		{"tools", "runs", "no floor"},
		{"runs", "tools", "no floor"},
	} {
		got := broken(pkgPath+c.from, pkgPath+c.to)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s imports %s: got %q, want %q", c.from, c.to, got, c.want)
		}
	}
	if got := broken(pkgPath+"train", module+"/kernels/kernelspec"); !strings.Contains(got, "above all floors") {
		t.Errorf("train imports kernels: got %q", got)
	}
	if got := broken(pkgPath+"cmd/lockstep", module+"/kernels/kernelspec"); got != "" {
		t.Errorf("the command installs the kernel, but: %s", got)
	}
}

// TestLintKnowsFloors: depguard says the same in the editor, so each room must
// stand in its list.
func TestLintKnowsFloors(t *testing.T) {
	text, err := os.ReadFile("../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	for floor, rooms := range floors[:8] { // nothing is above floor 8
		for _, room := range rooms {
			if want := `"**/pkg/` + room + `/**"`; !bytes.Contains(text, []byte(want)) {
				t.Errorf(".golangci.yml: no rule for %s of floor %d (%s)", room, floor, want)
			}
			if want := "{pkg: " + pkgPath + room + ","; floor > 0 && !bytes.Contains(text, []byte(want)) {
				t.Errorf(".golangci.yml: nobody is kept from importing %s of floor %d (%s)", room, floor, want)
			}
		}
	}
}

const megabyte = 1 << 20

// forbidden are words that no file of the project holds: paths of the machine
// it was written on, hosts of package registries, numbers of tickets. They are
// written so that this file does not hold them either.
var forbidden = map[string]*regexp.Regexp{
	"a path of somebody's machine": regexp.MustCompile(`(?:^|[^\w.~$}-])/(?:hom[e]|roo[t]|wor[k]|far[m])/`),
	"the host of a registry":       regexp.MustCompile(`prox[y]\.golang\.org|su[m]\.golang\.org|de[b]\.debian\.org|registr[y]\.npmjs|py[p]i\.org`),
	"the number of a ticket":       regexp.MustCompile(`(?i)\bissu[e]s? (?:#|\[)?\d`),
}

// TestFiles looks at every file that git has or would have.
func TestFiles(t *testing.T) {
	files := projectFiles(t)
	if len(files) < 50 { // the project has hundreds
		t.Fatalf("found only %d files", len(files))
	}
	for _, path := range files {
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted but still tracked, or a link
		}
		if info.Size() > megabyte {
			t.Errorf("%s: %d bytes; files of the project stay below 1 MB", path, info.Size())
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if bytes.IndexByte(text, 0) >= 0 {
			continue // a picture
		}
		for number, line := range strings.Split(string(text), "\n") {
			for _, what := range forbiddenIn(line) {
				t.Errorf("%s:%d: holds %s: %.120s", path, number+1, what, strings.TrimSpace(line))
			}
		}
	}
}

// invented are homes of people who do not exist, for tests and examples.
var invented = strings.NewReplacer("/home/ada", "", "/home/jovyan", "")

func forbiddenIn(line string) []string {
	line = invented.Replace(line)
	var found []string
	for _, what := range slices.Sorted(maps.Keys(forbidden)) {
		if forbidden[what].MatchString(line) {
			found = append(found, what)
		}
	}
	return found
}

func TestForbiddenIn(t *testing.T) {
	for line, want := range map[string]int{
		`dir := "/ho` + `me/grace/data"`:          1,
		`dir := "/home/ada/data"`:                 0,
		`see https://example.org/ho` + `me/x`:     0,
		`GOPROXY=https://prox` + `y.golang.org`:   1,
		`fixes iss` + `ue 12`:                     1,
		`an issue with 2 workers`:                 0,
		`cache in $HOME/.cache, prefix /usr/root`: 0,
	} {
		if got := forbiddenIn(line); len(got) != want {
			t.Errorf("%q: found %q, want %d", line, got, want)
		}
	}
}

// projectFiles asks git, or walks the checkout where there is none.
func projectFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	if out, err := exec.Command("git", "-C", "..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output(); err == nil {
		for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
			files = append(files, filepath.Join("..", name))
		}
		return files
	}
	t.Log("no git here: looking at every file that is not in an ignored folder")
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == ".build" || name == ".cache" || name == ".ipynb_checkpoints" || path == "../logs"):
			return filepath.SkipDir
		case !d.IsDir() && !strings.HasSuffix(name, ".test") && !strings.HasSuffix(name, ".prof"):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
