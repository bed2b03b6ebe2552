package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	upstreamModule  = "github.com/gopherdata/gophernotes"
	upstreamVersion = "v0.7.5"
)

// gophernotesFiles returns the names of the files of gophernotes that become part of the
// kernel. compiler_version.go is left out: it rejects Go versions before 1.11 with a
// build constraint in a syntax that Go no longer supports.
func gophernotesFiles() []string {
	return []string{"complete.go", "display.go", "image.go", "kernel.go", "main.go", "messages.go", "x_package.go"}
}

// A substitution replaces a piece of code in a file of another module.
type substitution struct {
	file string // file name in gophernotes
	old  string // text that must occur in the file exactly once
	new  string // text that replaces it
}

// If the reply to a message cannot be sent, gophernotes ends with failsFatally. The overlay replaces
// it by failsWithMessage.
const (
	failsFatally     = "; err != nil {\n\t\t\tlog.Fatal(err)"
	failsWithMessage = "; err != nil {\n\t\t\tlog.Println(err)"
)

// substitutions returns the changes that the kernel makes to the source of gophernotes.
// The functions that the new code calls are in kernels/lockstep-kernel.
func substitutions() []substitution {
	return []substitution{
		{"kernel.go", "ir := interp.New()", "ir := newInterp()"},
		{
			"kernel.go", "vals, types, executionErr := doEval(ir, outerr, code)",
			"vals, types, executionErr := evalCell(ir, outerr, code)",
		},
		{
			"kernel.go", "Version:       runtime.Version(),",
			`Version: runtime.Version(), MIMEType: "text/x-go", PygmentsLexer: "go", CodeMirrorMode: "text/x-go",`,
		},
		{"kernel.go", "data := kernel.autoRenderResults(vals, types)", "data := globalKernel.render(kernel, vals, types)"},
		{
			"kernel.go", "if err := receipt.PublishExecutionError(executionErr.Error(), []string{executionErr.Error()}); err != nil {",
			"if err := publishError(receipt, content, executionErr); err != nil {",
		},
		{"kernel.go", `log.Println("Shutting down in response to shutdown_request")`, "globalKernel.shutDown()"},
		{"kernel.go", "go poll(stdin, sockets.StdinSocket.Socket)", "go globalKernel.stdin.listen(sockets)"},
		// A client that has gone does not end the kernel for the others.
		{"kernel.go", "sendKernelInfo(receipt)" + failsFatally, "sendKernelInfo(receipt)" + failsWithMessage},
		{"kernel.go", "kernel.handleIsCompleteRequest(receipt)" + failsFatally, "kernel.handleIsCompleteRequest(receipt)" + failsWithMessage},
		{"kernel.go", "handleCompleteRequest(ir, receipt)" + failsFatally, "replyToComplete(ir, receipt)" + failsWithMessage},
		{"kernel.go", "kernel.handleExecuteRequest(receipt)" + failsFatally, "globalKernel.execute(kernel, receipt)" + failsWithMessage},
		// Requests wait in a channel, so that the requests after a failed one can be counted.
		{"kernel.go", "shell = make(chan msgType)", "shell = make(chan msgType, maxQueued)"},
		{"kernel.go", "\tdefer close(quit)\n\tpoll", "\tdefer close(quit)\n\tglobalKernel.queue.waiting = func() int { return len(shell) }\n\tpoll"},
		{"kernel.go", "// Handle shell messages.\n", "globalKernel.queue.taken++\n"},
		{
			"kernel.go", `			Implementation:        "gophernotes",
			ImplementationVersion: Version,
			Banner:                fmt.Sprintf("Go kernel: gophernotes - v%s", Version),
`, `			Implementation:        "lockstep",
			ImplementationVersion: implementationVersion(),
			Banner:                banner(),
`,
		},
		{
			"kernel.go", `log.Println("Unhandled shell message: ", receipt.Msg.Header.MsgType)`,
			"answerUnsupportedMessage(receipt)",
		},
	}
}

// applySubstitutions returns src with the substitutions for file applied. Each old text must
// occur exactly once: otherwise the module's source has changed, and a kernel built from
// it could misbehave unnoticed.
func applySubstitutions(module, file, src string, subs []substitution) (string, error) {
	for _, s := range subs {
		if s.file != file {
			continue
		}
		if n := strings.Count(src, s.old); n != 1 {
			return "", fmt.Errorf("substitute in %s %s: found %q %d times, want exactly once; "+
				"kernels/build supports only one version", module, file, s.old, n)
		}
		src = strings.Replace(src, s.old, s.new, 1)
	}
	return src, nil
}

// findGophernotes returns the folder of gophernotes in the module cache. It returns an
// error if the version or the list of files differs from the expected one.
func findGophernotes(ctx context.Context, g goTool) (string, error) {
	version, dir, err := findModule(ctx, g, upstreamModule)
	if err != nil {
		return "", fmt.Errorf("find gophernotes: %w", err)
	}
	if version != upstreamVersion {
		return "", fmt.Errorf("find gophernotes: go.mod selects %s, but kernels/build/overlay.go supports only %s", version, upstreamVersion)
	}
	return dir, checkGophernotesFiles(dir)
}

// findModule returns the version and the folder of a module that go.mod selects. It
// downloads the module if it is not in the cache yet.
func findModule(ctx context.Context, g goTool, path string) (version, dir string, err error) {
	out, err := g.run(ctx, "mod", "download", "-json", path)
	if err != nil {
		return "", "", err
	}
	var mod struct{ Version, Dir string }
	if err := json.Unmarshal([]byte(out), &mod); err != nil {
		return "", "", fmt.Errorf("read module description: %w", err)
	}
	return mod.Version, mod.Dir, nil
}

// checkGophernotesFiles returns an error unless the Go files in dir have the names that
// gophernotesFiles returns.
func checkGophernotesFiles(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return fmt.Errorf("list gophernotes: %w", err)
	}
	var got []string
	for _, n := range names {
		if n = filepath.Base(n); !strings.HasSuffix(n, "_test.go") && n != "compiler_version.go" {
			got = append(got, n)
		}
	}
	if want := gophernotesFiles(); !slices.Equal(got, want) {
		return fmt.Errorf("check gophernotes in %s: got files %v, want %v", dir, got, want)
	}
	return nil
}

// An overlay collects files for "go build -overlay", which maps the path at which the
// compiler sees a file to the path of its content. Files of gophernotes and generated
// files therefore never appear in the source tree.
type overlay struct {
	genDir  string            // folder of the generated files
	replace map[string]string // path that the compiler sees -> path of the content
	written map[string]bool   // paths of the files generated in this run
}

func newOverlay(genDir string) *overlay {
	return &overlay{genDir: genDir, replace: map[string]string{}, written: map[string]bool{}}
}

// addGenerated writes src to a file with the given name in the folder of generated files,
// and maps path to this file. It does not write the file if the content is unchanged.
func (o *overlay) addGenerated(path, name string, src []byte) error {
	real := filepath.Join(o.genDir, name)
	o.replace[path] = real
	o.written[real] = true
	return writeIfChanged(real, src)
}

// writeUnmapped writes a generated file that the compiler reads directly, without a
// mapping.
func (o *overlay) writeUnmapped(path string, src []byte) error {
	o.written[path] = true
	return writeIfChanged(path, src)
}

// writeIfChanged writes src to a file unless the file already has this content.
func writeIfChanged(path string, src []byte) error {
	old, err := os.ReadFile(path)
	if err == nil && string(old) == string(src) {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write generated file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write generated file: %w", err)
	}
	if err := os.WriteFile(path, src, 0o644); err != nil {
		return fmt.Errorf("write generated file: %w", err)
	}
	return nil
}

// addGophernotes maps the files of gophernotes, with the substitutions applied, into
// kernelDir.
func (o *overlay) addGophernotes(dir, kernelDir string) error {
	subs := substitutions()
	for _, file := range gophernotesFiles() {
		src, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return fmt.Errorf("read gophernotes: %w", err)
		}
		text, err := applySubstitutions("gophernotes", file, string(src), subs)
		if err != nil {
			return err
		}
		seen := filepath.Join(kernelDir, "gophernotes_"+file)
		if text == string(src) {
			o.replace[seen] = filepath.Join(dir, file)
			continue
		}
		if err := o.addGenerated(seen, "gophernotes_"+file, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// write writes the overlay's JSON file and returns its path. It removes generated files
// of earlier runs that this run did not generate.
func (o *overlay) write() (string, error) {
	doc, err := json.MarshalIndent(map[string]any{"Replace": o.replace}, "", "\t")
	if err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	path := filepath.Join(o.genDir, "overlay.json")
	o.written[path] = true
	if err := writeIfChanged(path, doc); err != nil {
		return "", err
	}
	err = filepath.WalkDir(o.genDir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !o.written[p] {
			return os.Remove(p)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("clean generated files: %w", err)
	}
	return path, nil
}
