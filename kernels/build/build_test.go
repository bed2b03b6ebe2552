package main

import (
	"go/ast"
	gobuild "go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

// The real upstream is patched, so that a change of go.mod is noticed here and
// not by a kernel that misbehaves.
func TestPatchesFitUpstream(t *testing.T) {
	b, err := newBuild(t.Context(), options{})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := findGophernotes(t.Context(), b.goTool)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := b.readPatches("gophernotes")
	if err != nil {
		t.Fatal(err)
	}
	ov := newOverlay(t.TempDir())
	if err := ov.addGophernotes(dir, "/kernel", changes); err != nil {
		t.Fatal(err)
	}
	if len(ov.replace) != len(gophernotesFiles()) || len(ov.written) != 1 {
		t.Errorf("the overlay shows %d files, %d of them changed; want %d and kernel.go alone", len(ov.replace), len(ov.written), len(gophernotesFiles()))
	}
	checkPatched(t, ov.replace["/kernel/gophernotes_kernel.go"], changes["kernel.go"])

	_, dir, err = findModule(t.Context(), b.goTool, interpreterModule)
	if err != nil {
		t.Fatal(err)
	}
	if changes, err = b.readPatches("gomacro"); err != nil {
		t.Fatal(err)
	}
	seen := t.TempDir()
	ov = newOverlay(t.TempDir())
	if err := ov.addModule(interpreterModule, dir, seen, changes); err != nil {
		t.Fatal(err)
	}
	if len(ov.written) != len(changes) || len(changes) < 9 {
		t.Errorf("%d files of the interpreter are changed, want the %d of the patches, and at least 9", len(ov.written), len(changes))
	}
	for file, change := range changes {
		checkPatched(t, ov.replace[filepath.Join(seen, file)], change)
	}
	// The go command starts the assembler there, with an empty cache of builds.
	if info, err := os.Stat(filepath.Join(seen, "gls")); err != nil || !info.IsDir() {
		t.Errorf("the folder of a package with assembly is missing: %v", err)
	}
}

// checkPatched checks that the file is Go and has every line that the patch adds.
func checkPatched(t *testing.T, path string, change patch) {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), path, src, 0); err != nil {
		t.Errorf("after %s: %v", change.name, err)
	}
	added := 0
	for _, fragment := range change.diff.TextFragments {
		for _, line := range fragment.Lines {
			if line.Op == gitdiff.OpAdd {
				added++
				if !strings.Contains(string(src), line.Line) {
					t.Errorf("%s has no line %q of %s", path, line.Line, change.name)
				}
			}
		}
	}
	if added == 0 {
		t.Errorf("%s adds no line to %s", change.name, path)
	}
}

func TestPatches(t *testing.T) {
	const text = "Says why.\n\ndiff --git a/sub/a.go b/sub/a.go\n--- a/sub/a.go\n+++ b/sub/a.go\n@@ -1,3 +1,3 @@\n package a\n \n-func old() {}\n+func changed() {}\n"
	changes := patches{}
	if err := changes.add("one.patch", []byte(text)); err != nil {
		t.Fatal(err)
	}
	const before, after = "package a\n\nfunc old() {}\n", "package a\n\nfunc changed() {}\n"
	if got, err := changes.apply("sub/a.go", []byte(before)); err != nil || string(got) != after {
		t.Errorf("the patched file is %q, %v", got, err)
	}
	if got, err := changes.apply("sub/b.go", []byte(before)); err != nil || string(got) != before {
		t.Errorf("a file without a patch becomes %q, %v", got, err)
	}
	for _, src := range []string{"", after, "// Package a.\n" + before, "package a\n\nfunc older() {}\n"} {
		_, err := changes.apply("sub/a.go", []byte(src))
		if err == nil || !strings.Contains(err.Error(), "one.patch to sub/a.go") {
			t.Errorf("the patch of the changed file %q gives the error %v", src, err)
		}
	}
	if err := changes.add("two.patch", []byte(text)); err == nil || !strings.Contains(err.Error(), "one.patch changes sub/a.go too") {
		t.Errorf("two patches of one file give the error %v", err)
	}
	for _, text := range []string{"", "Says why.\n", strings.Replace(text, "-1,3", "-1,2", 1)} {
		if err := (patches{}).add("bad.patch", []byte(text)); err == nil || !strings.Contains(err.Error(), "bad.patch") {
			t.Errorf("the patch %q gives the error %v", text, err)
		}
	}
	if err := changes.checkFiles(t.TempDir()); err == nil || !strings.Contains(err.Error(), "one.patch") {
		t.Errorf("a patch of a missing file gives the error %v", err)
	}
	b := &build{goTool: goTool{dir: t.TempDir()}}
	if _, err := b.readPatches("gomacro"); err == nil || !strings.Contains(err.Error(), "gomacro*.patch") {
		t.Errorf("missing patches give the error %v", err)
	}
}

func TestUnknownUpstreamFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("package main\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range append(gophernotesFiles(), "compiler_version.go", "kernel_test.go") {
		write(f)
	}
	if err := checkGophernotesFiles(dir); err != nil {
		t.Error(err)
	}
	write("new.go")
	if err := checkGophernotesFiles(dir); err == nil || !strings.Contains(err.Error(), "new.go") {
		t.Errorf("a file that the recipe does not know gives %v", err)
	}
}

// sample is a package with one of everything that needs a decision.
const sample = `package sample

import (
	"io"
	"unsafe"
)

const (
	Small   = 3
	Huge    = 1 << 63
	Lowest  = -1 << 63
	Beyond  = 1 << 70
	Pi      = 3.14159265358979323846
	Letter  = 'a'
	Name    = "a\"b"
	On      = true
	Wave    = 1 + 2i
	Typed   uint8 = 7
	private = 1
)

var Default, hidden = 1, 2

func Plain(n int) (string, error)   { return "", nil }
func Sum[T int | float64](x ...T) T { var s T; return s }

type (
	Struct  struct{ X int }
	List[T any] struct{ head *T }
	Ints    = List[int]
	Any[T any] = List[T]
	Number  interface{ ~int | ~float64 }
	Empty   interface{}
	Store   interface {
		// r and p are also names in the generated file.
		Put(r io.Reader, keys ...string) (p int, err error)
		Close()
		Walk(func(path string, list List[int]) error) <-chan map[string]Struct
	}
	Closed  interface {
		Open()
		close()
	}
	Pinned  interface{ At() unsafe.Pointer }
	secret  struct{}
	Leaky   interface{ Get() *secret }
	Held    interface{ Object() int }
)
`

// sourceImporter returns an importer that reads the standard library's source. A test
// binary that was built with -trimpath does not know where that is.
func sourceImporter(t *testing.T, files *token.FileSet) types.Importer {
	t.Helper()
	if gobuild.Default.GOROOT == "" {
		out, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			t.Fatal(err)
		}
		gobuild.Default.GOROOT = strings.TrimSpace(string(out))
	}
	return importer.ForCompiler(files, "source", nil)
}

func checkSample(t *testing.T) *types.Package {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, "sample.go", sample, 0)
	if err != nil {
		t.Fatal(err)
	}
	conf := types.Config{Importer: sourceImporter(t, files)}
	p, err := conf.Check("example.org/sample", files, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRegister(t *testing.T) {
	src, skipped, err := generateRegistration(checkSample(t), "reg_sample")
	if err != nil {
		t.Fatal(err)
	}
	// gofmt lines entries up; one space will do here.
	text := strings.Join(strings.Fields(string(src)), " ")
	for _, want := range []string{
		`imports.Packages["example.org/sample"] = imports.Package{ Name: "sample",`,
		`"Small": r.ValueOf(p0_sample.Small),`, `"Small": "int:3",`,
		`"Huge": r.ValueOf(uint64(p0_sample.Huge)),`, `"Huge": "int:9223372036854775808",`,
		`"Lowest": r.ValueOf(p0_sample.Lowest),`,
		`"Beyond": r.ValueOf(float64(p0_sample.Beyond)),`, `"Beyond": "int:1180591620717411303424",`,
		`"Pi": r.ValueOf(p0_sample.Pi),`, `"Letter": "rune:97",`, `"Name": "string:a\"b",`, `"On": "bool:true",`, `"Wave": "complex:1:2",`,
		`"Typed": r.ValueOf(p0_sample.Typed),`,
		`"Default": r.ValueOf(&p0_sample.Default).Elem(),`,
		`"Plain": r.ValueOf(p0_sample.Plain),`,
		`"Struct": r.TypeOf((*p0_sample.Struct)(nil)).Elem(),`,
		`"Ints": r.TypeOf((*p0_sample.Ints)(nil)).Elem(),`,
		`"Store": r.TypeOf((*proxyStore)(nil)).Elem(),`,
		`Put_ func(obj interface{}, a0 p1_io.Reader, a1 ...string) (int, error)`,
		`func (p *proxyStore) Put(a0 p1_io.Reader, a1 ...string) (int, error) { return p.Put_(p.Object, a0, a1...) }`,
		`func (p *proxyStore) Close() { p.Close_(p.Object) }`,
		`a0 func(path string, list p0_sample.List[int]) error) <-chan map[string]p0_sample.Struct {`,
		`"Closed": r.TypeOf((*p0_sample.Closed)(nil)).Elem(),`,
		"// Sum is generic", "// List is generic", "// Any is generic", "// Number is a constraint",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("registration has no %s", want)
		}
	}
	for _, not := range []string{
		"p0_sample.Sum", "p0_sample.List)", "Number)(nil)", "private", "hidden", "*secret", "proxyEmpty", "proxyClosed",
		"proxyPinned", "proxyLeaky", "proxyHeld", `"Typed": "int`,
	} {
		if strings.Contains(text, not) {
			t.Errorf("registration has %s", not)
		}
	}
	slices.Sort(skipped)
	if want := []string{"Any", "List", "Number", "Sum"}; !slices.Equal(skipped, want) {
		t.Errorf("left out are %v, want %v", skipped, want)
	}
	if t.Failed() {
		t.Logf("%s", src)
	}
}

// What is written must compile. The package itself and the interpreter's table
// are stood in for, so that the test needs no build.
func TestRegistrationTypeChecks(t *testing.T) {
	p := checkSample(t)
	src, _, err := generateRegistration(p, "reg_sample")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	source := sourceImporter(t, files)
	const table = `package imports
import "reflect"
type Package struct {
	Name string; Binds map[string]reflect.Value; Types, Proxies map[string]reflect.Type; Untypeds map[string]string
}
var Packages = map[string]Package{}`
	known := map[string]*types.Package{p.Path(): p}
	conf := types.Config{Importer: importerFunc(func(path string) (*types.Package, error) {
		if p, ok := known[path]; ok {
			return p, nil
		}
		return source.Import(path)
	})}
	for _, in := range []struct{ path, src string }{{"github.com/cosmos72/gomacro/imports", table}, {"reg_sample", string(src)}} {
		f, err := parser.ParseFile(files, in.path+".go", in.src, 0)
		if err != nil {
			t.Fatal(err)
		}
		if known[in.path], err = conf.Check(in.path, files, []*ast.File{f}, nil); err != nil {
			t.Errorf("%v\n%s", err, in.src)
		}
	}
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }

func TestImportable(t *testing.T) {
	for _, tt := range []struct {
		name, path string
		want       bool
	}{
		{"fmt", "fmt", true},
		{"scaling", "lockstep/pkg/scaling", true},
		{"rand", "math/rand/v2", true},
		{"main", "lockstep/pkg/cmd/lockstep", false},
		{"plan", "lockstep/pkg/internal/plan", false},
		{"abi", "internal/abi", false},
		{"x", "vendor/golang.org/x", false},
		{"unsafe", "unsafe", false},
	} {
		if got := isImportable(tt.name, tt.path); got != tt.want {
			t.Errorf("importable(%q, %q) = %v", tt.name, tt.path, got)
		}
	}
}

// module writes a module of these files and returns a go tool for it.
func module(t *testing.T, files map[string]string) goTool {
	t.Helper()
	dir := t.TempDir()
	for name, src := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(src), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return goTool{dir: dir, env: append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")}
}

func TestListPackages(t *testing.T) {
	g := module(t, map[string]string{
		"go.mod":               "module example.org/list\n\ngo 1.26\n",
		"only_test.go":         "package list_test\n",
		"a/a.go":               "package a\n",
		"b/b.go":               "package b\n",
		"cmd/tool/main.go":     "package main\n\nfunc main() {}\n",
		"internal/hidden/x.go": "package hidden\n",
		"tagged/t.go":          "//go:build nvgpu\n\npackage tagged\n",
	})
	got, err := listPackages(t.Context(), g, "example.org/list/...")
	if want := []string{"example.org/list/a", "example.org/list/b"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("listPackages = %v, %v, want %v", got, err, want)
	}
}

func TestBrokenPackageIsAnError(t *testing.T) {
	g := module(t, map[string]string{
		"go.mod":        "module example.org/broken\n\ngo 1.26\n",
		"good/good.go":  "package good\n\nconst X = 1\n",
		"wrong/oops.go": "package wrong\n\nvar X int = \"text\"\n",
	})
	pkgs, err := loadPackages(t.Context(), g, "", []string{"example.org/broken/good"})
	if err != nil || len(pkgs) != 1 || pkgs[0].Types.Scope().Lookup("X") == nil {
		t.Fatalf("load of a good package gives %v, %v", pkgs, err)
	}
	_, err = loadPackages(t.Context(), g, "", []string{"example.org/broken/good", "example.org/broken/wrong"})
	if err == nil {
		t.Fatal("a package that does not compile gives no error")
	}
	for _, want := range []string{"example.org/broken/wrong", "must compile", "oops.go"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error is %q, want %q in it", err, want)
		}
	}
	if _, err := loadPackages(t.Context(), g, "", []string{"example.org/broken/none"}); err == nil {
		t.Error("a package that is not there gives no error")
	}
}

func TestBuildIDFollowsTheSources(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module lockstep\n")
	write("go.sum", "")
	write("pkg/a/a.go", "package a\n")
	write("kernels/k.go", "package k\n")
	id := func() string {
		t.Helper()
		id, err := computeBuildID(root)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := id()
	if len(first) != 16 || id() != first {
		t.Errorf("ids are %q and %q, want 16 digits twice", first, id())
	}
	// What is not built does not count.
	write("pkg/a/a_test.go", "package a\n")
	write("pkg/a/README.md", "prose")
	write("pkg/a/testdata/x.csv", "1,2")
	write("kernels/.build/gen/reg.go", "package reg\n")
	write("logs/run.json", "{}")
	if id() != first {
		t.Error("a test, prose, test data, generated or foreign files change the id")
	}
	last := first
	for name, text := range map[string]string{
		"go.sum": "x", "pkg/a/a.go": "package b\n", "pkg/a/b_amd64.s": "TEXT", "pkg/a/configs/c.yaml": "a: 1", "kernels/k.go": "package l\n",
		"environment/sites/a.yaml": "a: 1",
	} {
		write(name, text)
		if now := id(); now == last {
			t.Errorf("a change of %s does not change the id", name)
		} else {
			last = now
		}
	}
}

func TestStampKnowsWhenNothingIsToBeDone(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "lockstep-kernel")
	s := newStamp(dir, "id", "tags ")
	if s.isCurrent([]string{out}) || s.write([]string{out}) == nil {
		t.Error("a build without its binary counts as done")
	}
	if err := os.WriteFile(out, []byte("kernel"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.write([]string{out}); err != nil {
		t.Fatal(err)
	}
	if !s.isCurrent([]string{out}) {
		t.Error("a finished build does not count as done")
	}
	if newStamp(dir, "other", "tags ").isCurrent([]string{out}) || newStamp(dir, "id", "tags nvgpu").isCurrent([]string{out}) {
		t.Error("other sources or other tags count as done")
	}
	if err := os.WriteFile(out, []byte("something else"), 0o755); err != nil {
		t.Fatal(err)
	}
	if s.isCurrent([]string{out}) {
		t.Error("a binary that was overwritten counts as done")
	}
}

func TestOverlayRemovesWhatIsLeftOver(t *testing.T) {
	dir := t.TempDir()
	ov := newOverlay(dir)
	if err := ov.addGenerated("/seen/old.go", "old/reg.go", []byte("package old\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := ov.write(); err != nil {
		t.Fatal(err)
	}
	ov = newOverlay(dir)
	if err := ov.addGenerated("/seen/new.go", "new/reg.go", []byte("package new\n")); err != nil {
		t.Fatal(err)
	}
	path, err := ov.write()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "old", "reg.go")); !os.IsNotExist(err) || strings.Contains(string(doc), "old.go") {
		t.Errorf("a package that is gone is still there: %v\n%s", err, doc)
	}
	if !strings.Contains(string(doc), `"/seen/new.go": "`+filepath.Join(dir, "new", "reg.go")+`"`) {
		t.Errorf("overlay is %s", doc)
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-o", "/bin", "-tags", "nvgpu", "-add", "a/b,c/d"})
	if err != nil || o.out != "/bin" || o.tags != "nvgpu" || !slices.Equal(o.add, []string{"a/b", "c/d"}) {
		t.Errorf("options are %+v, %v", o, err)
	}
	if _, err := parseOptions([]string{"-tags", "cuda"}); err == nil || !strings.Contains(err.Error(), "-tags nvgpu") {
		t.Errorf("-tags cuda gives %v", err)
	}
	if _, err := parseOptions([]string{"stray"}); err == nil || !strings.Contains(err.Error(), `"stray"`) {
		t.Errorf("a stray argument gives %v", err)
	}
}
