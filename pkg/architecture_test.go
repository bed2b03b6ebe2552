// Package pkg_test checks which package may import which, and what the project's
// files may hold.
package pkg_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
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

// layers lists the packages from the bottom up. An entry stands for a package and
// all packages below it (engine includes engine/cpu); it imports only entries of
// lower layers.
var layers = [][]string{
	0: {"notebook", "runs", "metric", "optim", "weights", "internal/clib", "internal/strictyaml"},
	1: {"internal/device", "nn", "logread", "monitor", "nvrtc"},
	2: {"data", "collective", "model", "internal/plan", "scaling"},
	3: {"engine", "figure"},
	4: {"strategy", "report", "internal/gputest", "internal/inference"},
	5: {"train"},
	6: {"launch", "tune", "verify", "predict"},
	7: {"bench", "course"},
	8: {"cmd/lockstep"},
}

// basePackages may be imported by every package and import no package of this
// module: a build's constants, hints for misspelled names, numbers in sentences,
// files written whole, files that are safe to open, signals and time-outs, text
// that is safe to show, encodings of text, the machine's CPUs, locks of files.
var basePackages = []string{"internal/buildid", "internal/nearest", "internal/english", "internal/wholefile", "internal/safeopen", "internal/process", "internal/clean", "internal/plaintext", "internal/topology", "internal/filelock", "internal/slurmtest"}

// The two flows meet in runs; what belongs to one never imports the other.
var (
	training = []string{
		"optim", "weights", "internal/device", "nn", "data", "collective", "model", "internal/plan",
		"engine", "strategy", "train", "tune", "verify", "predict", "internal/inference",
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

// layerOf returns the entry of the table that an import path below pkg/ belongs
// to, and its layer, which is -1 for a base package. ok is false if the table has
// no such entry.
func layerOf(path string) (entry string, layer int, ok bool) {
	rest, below := strings.CutPrefix(path, pkgPath)
	if !below {
		return "", 0, false
	}
	if slices.Contains(basePackages, rest) {
		return rest, -1, true
	}
	for layer, entries := range layers {
		for _, entry := range entries {
			if rest == entry || strings.HasPrefix(rest, entry+"/") {
				return entry, layer, true
			}
		}
	}
	return "", 0, false
}

// mayNameCUDA reports whether a package may import engine/cuda: its own packages, those that measure
// and simulate it, and those that link all engines.
func mayNameCUDA(path string) bool {
	for _, allowed := range []string{"engine/cuda", "engine/all", "bench/gpu", "internal/gputest", "cmd/lockstep"} {
		if rest := strings.TrimPrefix(path, pkgPath); rest == allowed || strings.HasPrefix(rest, allowed+"/") {
			return true
		}
	}
	return false
}

// violation returns what is wrong with one import, or "" if it is allowed.
func violation(from, to string) string {
	const unlisted = "%s is in no layer: add it to the table in pkg/architecture_test.go"
	entry, layer, ok := layerOf(from)
	switch {
	case !ok:
		return fmt.Sprintf(unlisted, from)
	case strings.HasPrefix(to, module+"/") && !strings.HasPrefix(to, pkgPath):
		// Only the command imports kernels/: it installs the kernelspec.
		if entry == "cmd/lockstep" && strings.HasPrefix(to, module+"/kernels/") {
			return ""
		}
		if strings.HasPrefix(from, pkgPath+"launch/") && to == module+"/environment/sites" {
			return "" // embedded files that users look for in environment/
		}
		if from == pkgPath+"runs" && strings.HasPrefix(to, module+"/logs/") {
			return "" // embedded tables and run folders that users look for in logs/
		}
		if from == pkgPath+"course" && to == module+"/notebooks/course" {
			return "" // embedded tasks that teachers look for in notebooks/
		}
		return fmt.Sprintf("%s imports %s, which is above all layers", from, to)
	case !strings.HasPrefix(to, pkgPath):
		return ""
	}
	if to == pkgPath+"engine/cuda" && !mayNameCUDA(from) {
		return fmt.Sprintf("%s imports %s: programs link engines by engine/all, and use them by package engine", from, to)
	}
	toEntry, toLayer, ok := layerOf(to)
	switch {
	case !ok:
		return fmt.Sprintf(unlisted, to)
	case toEntry == entry:
		return ""
	case toLayer >= layer:
		return fmt.Sprintf("%s (layer %d) imports %s (layer %d); a package imports only from lower layers", from, layer, to, toLayer)
	case slices.Contains(training, entry) && slices.Contains(analysis, toEntry):
		return fmt.Sprintf("%s trains and imports %s, which analyzes; they meet in runs", from, to)
	case slices.Contains(analysis, entry) && slices.Contains(training, toEntry):
		return fmt.Sprintf("%s analyzes and imports %s, which trains; they meet in runs", from, to)
	}
	return ""
}

func TestLayers(t *testing.T) {
	packages := goList(t)
	if len(packages) == 0 {
		t.Fatal("go list found no package")
	}
	reported := map[string]bool{}
	for _, p := range packages {
		if p.ImportPath == strings.TrimSuffix(pkgPath, "/") {
			continue // this test
		}
		for _, to := range append([]string{""}, p.Imports...) {
			if reason := violation(p.ImportPath, to); reason != "" && !reported[reason] {
				reported[reason] = true
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

// TestViolation shows that each rule can fail.
func TestViolation(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"engine/cpu", "engine", ""},
		{"engine", "internal/plan", ""},
		{"notebook", "internal/buildid", ""},
		{"internal/buildid", "notebook", "lower layers"},
		{"launch", "figure", ""},
		{"runs", "train", "lower layers"},
		{"data", "scaling", "lower layers"}, // the same layer is not lower
		{"figure", "nn", "they meet in runs"},
		{"train", "scaling", "they meet in runs"},
		{"train", "engine/cuda", "engine/all"},
		{"engine/all", "engine/cuda", ""},
		{"tools", "runs", "no layer"},
		{"runs", "tools", "no layer"},
	} {
		got := violation(pkgPath+c.from, pkgPath+c.to)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s imports %s: got %q, want %q", c.from, c.to, got, c.want)
		}
	}
	if got := violation(pkgPath+"train", module+"/kernels/kernelspec"); !strings.Contains(got, "above all layers") {
		t.Errorf("train imports kernels: got %q", got)
	}
	if got := violation(pkgPath+"launch/site", module+"/environment/sites"); got != "" {
		t.Errorf("launch/site reads the shipped profiles, but: %s", got)
	}
	for _, logs := range []string{"/logs/published", "/logs/recorded"} {
		if got := violation(pkgPath+"runs", module+logs); got != "" {
			t.Errorf("runs finds the logs that are shipped, but: %s", got)
		}
	}
	if got := violation(pkgPath+"course", module+"/notebooks/course"); got != "" {
		t.Errorf("course reads the shipped tasks, but: %s", got)
	}
	if got := violation(pkgPath+"scaling", module+"/logs/published"); !strings.Contains(got, "above all layers") {
		t.Errorf("scaling imports the published tables: got %q", got)
	}
	if got := violation(pkgPath+"cmd/lockstep", module+"/kernels/kernelspec"); got != "" {
		t.Errorf("the command installs the kernel, but: %s", got)
	}
}

var update = flag.Bool("update", false, "write the generated parts of .golangci.yml and CONTRIBUTING.md")

// TestGeneratedLayers compares the rules of depguard in .golangci.yml, which show
// a forbidden import in an editor, and the table in CONTRIBUTING.md with the
// tables above. Run it with -update after a change to them.
func TestGeneratedLayers(t *testing.T) {
	for _, c := range []struct{ path, begin, end, want string }{
		{"../.golangci.yml", "        # Generated by go test ./pkg -update:\n", "        # End of the generated rules.\n", depguardRules()},
		{"../CONTRIBUTING.md", "| layer | packages below `pkg/` |\n", "\n`pkg/architecture_test.go` holds", layerTable()},
	} {
		text, err := os.ReadFile(c.path)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, found := strings.Cut(string(text), c.begin)
		_, after, ended := strings.Cut(rest, c.end)
		if !found || !ended {
			t.Errorf("%s: no part between %q and %q", c.path, c.begin, c.end)
			continue
		}
		want := before + c.begin + c.want + c.end + after
		if want == string(text) {
			continue
		}
		if !*update {
			t.Errorf("%s: its list of layers differs from pkg/architecture_test.go; run go test ./pkg -update", c.path)
			continue
		}
		if err := os.WriteFile(c.path, []byte(want), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// layerTable returns the rows of the table in CONTRIBUTING.md, top layer first.
func layerTable() string {
	quoted := func(entries []string) string { return "`" + strings.Join(entries, "`, `") + "`" }
	var b strings.Builder
	b.WriteString("|---|---|\n")
	for layer, entries := range slices.Backward(layers) {
		packages := quoted(entries)
		if layer == len(layers)-1 {
			packages += " (and `kernels/`)"
		}
		fmt.Fprintf(&b, "| %d | %s |\n", layer, packages)
	}
	fmt.Fprintf(&b, "| base | %s |\n", quoted(basePackages))
	return b.String()
}

// depguardRules returns the rules of depguard for all layers and both flows.
func depguardRules() string {
	var b strings.Builder
	rule := func(name string, files []string, denied []string, why func(entry string) string) {
		fmt.Fprintf(&b, "        %s:\n          files:\n", name)
		for _, entry := range files {
			fmt.Fprintf(&b, "            - \"**/pkg/%s/**\"\n", entry)
		}
		b.WriteString("            - \"!**/*_test.go\"\n          deny:\n")
		for _, entry := range denied {
			fmt.Fprintf(&b, "            - {pkg: %s%s, desc: %q}\n", pkgPath, entry, why(entry))
		}
	}
	layerName := func(entry string) string {
		_, layer, _ := layerOf(pkgPath + entry)
		return fmt.Sprintf("layer %d, above this package", layer)
	}
	higher := slices.Concat(layers...)
	rule("base-packages", basePackages, higher, layerName)
	for layer, entries := range layers[:len(layers)-1] {
		higher = higher[len(entries):]
		rule(fmt.Sprintf("layer-%d", layer), entries, higher, layerName)
	}
	rule("training-flow", training, analysis, func(string) string { return "analysis; training meets it in runs" })
	rule("analysis-flow", analysis, training, func(string) string { return "training; analysis meets it in runs" })
	return b.String()
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
var invented = strings.NewReplacer("/home/ada", "", "/home/anna", "", "/home/ben", "", "/home/jovyan", "")

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
