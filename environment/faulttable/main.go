// Command faulttable runs the tests that inject faults and writes the outcomes to a
// Markdown table. The script environment/faults starts it.
//
//	faulttable [-out FILE] [-run REGEXP]
//
// A test that injects a fault describes it by t.Attr("fault", TEXT); a subtest may
// describe another fault. The attribute "outcome" describes what the test observed. Both
// appear in the output of go test -json.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "faults: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, progress io.Writer) error {
	set := flag.NewFlagSet("faults", flag.ContinueOnError)
	out := set.String("out", "environment/faults.md", "the file to write")
	pattern := set.String("run", "", "only tests whose names match this regular expression; prints the table")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	only, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("parse -run: %w", err)
	}
	found, err := findTests(".", only)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no test that matches %q injects a fault", *pattern)
	}
	var rows []row
	for _, folder := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(progress, "%s: %s\n", folder, strings.Join(found[folder], ", "))
		got, err := runTests(ctx, folder, found[folder])
		if err != nil {
			return err
		}
		rows = append(rows, got...)
	}
	var table bytes.Buffer
	writeTable(&table, rows)
	if *pattern != "" {
		_, err := table.WriteTo(progress)
		return errors.Join(err, checkVerdicts(rows))
	}
	if err := os.WriteFile(*out, table.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return checkVerdicts(rows)
}

// checkVerdicts returns an error with the number of rows whose verdict is bad, or nil if
// there are none.
func checkVerdicts(rows []row) error {
	n := 0
	for _, r := range rows {
		if r.verdict() == verdictBad {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%d of %d faults have the verdict bad", n, len(rows))
	}
	return nil
}

// findTests returns the names of the test functions that inject faults, in the test files
// below the folder root. It leaves out names that do not match pattern. The keys of
// byFolder are folders, such as ./pkg/launch.
func findTests(root string, pattern *regexp.Regexp) (byFolder map[string][]string, err error) {
	byFolder = map[string][]string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		names, err := findFaultTests(path)
		folder := "./" + filepath.ToSlash(filepath.Dir(path))
		for _, name := range names {
			if pattern.MatchString(name) {
				byFolder[folder] = append(byFolder[folder], name)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find tests: %w", err)
	}
	return byFolder, nil
}

// findFaultTests returns the names of the test functions in one file that call
// t.Attr("fault", …).
func findFaultTests(path string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
			continue
		}
		injects := false
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isFaultAttrCall(call) {
				injects = true
			}
			return !injects
		})
		if injects {
			names = append(names, f.Name.Name)
		}
	}
	return names, nil
}

// isFaultAttrCall reports whether a call has the form x.Attr("fault", …).
func isFaultAttrCall(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || method.Sel.Name != "Attr" || len(call.Args) != 2 {
		return false
	}
	key, ok := call.Args[0].(*ast.BasicLit)
	return ok && key.Value == `"`+attrFault+`"`
}

// runTests runs the named tests of one folder and returns a row for each fault.
func runTests(ctx context.Context, folder string, names []string) ([]row, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-timeout=20m", "-run", "^("+strings.Join(names, "|")+")$", folder)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("run go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run go test: %w", err)
	}
	rows, readErr := readRows(bufio.NewReader(pipe), names)
	waitErr := cmd.Wait()
	if readErr != nil {
		return nil, readErr
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var exit *exec.ExitError
	if waitErr != nil && !errors.As(waitErr, &exit) { // a failed test has a row in the table
		return nil, fmt.Errorf("run go test: %w", waitErr)
	}
	return rows, nil
}

// writeTable writes the Markdown document with the table of faults.
func writeTable(w io.Writer, rows []row) {
	fmt.Fprintf(w, `# Faults

How Lockstep handles faults. `+"`environment/faults`"+` runs the tests that inject these
faults and writes this file. The outcome is what the test observed or requires; the
verdict is whether the test passed. If the verdict is "not run", the outcome is the
reason. The seconds are the duration of the complete test, including its set-up.

Written on %s, %s/%s, %d cores, %s.

| fault | outcome | seconds | verdict | test |
|---|---|---|---|---|
`, time.Now().UTC().Format("2006-01-02"), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s | %.1f | %s | `%s` |\n", formatCell(r.fault), formatCell(r.outcome), r.seconds, r.verdict(), r.test)
	}
}

// maxCellLength is the maximum length of a table cell in characters.
const maxCellLength = 300

// temporaryPathPattern matches the path of a test's temporary folder.
var temporaryPathPattern = regexp.MustCompile(`/[^\s"]*/Test[^\s"/]*\d/\d{3}(/|\b)`)

// formatCell returns text for a cell of a Markdown table: it removes the paths of
// temporary folders, shortens the text, and escapes special characters.
func formatCell(text string) string {
	text = temporaryPathPattern.ReplaceAllStringFunc(strings.Join(strings.Fields(text), " "), func(path string) string {
		if strings.HasSuffix(path, "/") {
			return ""
		}
		return os.TempDir()
	})
	if runes := []rune(text); len(runes) > maxCellLength {
		text = string(runes[:maxCellLength]) + "…"
	}
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text)
}
