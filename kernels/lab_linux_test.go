package kernels

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// lab is the page of environment/browser/lab, which shows a notebook as JupyterLab does.
var lab = frontend{
	cell: `.jp-Cell[data-windowed-list-index="%d"]`, editor: ".cm-content", output: ".jp-Cell-outputWrapper",
	interrupt: `[title^="Interrupt the kernel"]`,
}

// The cells of the notebook of TestLab.
const (
	labImports = iota
	labText
	labFigures
	labWatch
	labFrames
	labComplete
	labInspect
	labInput
	labInterrupt
	labAfter
	labError
)

// labCells returns the cells.
func labCells() []string {
	return []string{
		labImports: `import (
    "fmt"
    "image"
    "os"
    "time"
    "lockstep/pkg/bench"
    "lockstep/pkg/figure"
    "lockstep/pkg/launch"
    "lockstep/pkg/notebook"
    "lockstep/pkg/scaling"
)
ctx := notebook.Context()
fmt.Println("kernel", os.Getpid())`,
		labText: "# Title\n\nA *word*, `code` and a table:\n\n| a | b |\n|---|---|\n| 1 | 2 |",
		labFigures: `study := scaling.Read("times.csv")
notebook.Display(study.Table())
notebook.Display(image.NewGray(image.Rect(0, 0, 40, 20)))
figure.Speedup(study)`,
		labWatch: fmt.Sprintf(`job := launch.Local(ctx, launch.Sweep{
    Config: "unet2d-cells", Study: "sweep", Workers: []int{1, 2}, GlobalBatch: 8, Epochs: %d, Set: %#v,
})
job.Watch(ctx)
fmt.Println("the sweep has ended")`, browserEpochs, browserSettings()),
		labFrames:    `figure.NewFrames(bench.RecordAllReduce(ctx, bench.RecordOptions{Workers: 2}))`,
		labComplete:  `figure.Speedu`,
		labInspect:   `scaling.Read`,
		labInput:     "name := \"\"\nfmt.Scan(&name)\nfmt.Println(\"hello\", name)",
		labInterrupt: "kept := 6 * 7\nfmt.Println(\"asleep\")\ntime.Sleep(time.Hour)",
		labAfter:     `fmt.Println("kept", kept)`,
		labError:     "zero := 0\nfmt.Println(1 / zero)",
	}
}

// TestLab does in Chromium, on a page with JupyterLab's notebook, what a person does with a notebook:
// looks at figures and tables, watches a sweep, completes and inspects names, answers a question,
// interrupts and restarts the kernel, runs all cells, and opens the saved notebook again: in the dark
// theme, and as a stranger's notebook, which is not trusted.
//
// The screenshots lab-*.png are in environment/.cache/browser.
func TestLab(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	binaries := kernelDir(t)
	b := startBrowser(t, lab)
	dir := t.TempDir()
	for name, value := range map[string]string{"LOCKSTEP_LOGS": filepath.Join(dir, "logs"), "LOCKSTEP_LOCKS": t.TempDir(), "XDG_STATE_HOME": t.TempDir(), "LOCKSTEP_BIN": ""} {
		t.Setenv(name, value)
	}
	page := startLab(t, dir, install(t, binaries))
	writeNotebook(t, filepath.Join(dir, "lab.ipynb"), labCells()...)
	if err := os.WriteFile(filepath.Join(dir, "times.csv"), []byte("workers,epoch,seconds\n1,1,40\n1,2,40\n2,1,21\n2,2,21\n4,1,12\n4,2,12\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	step := func(name string, f func(t *testing.T)) {
		if !t.Run(name, f) {
			t.FailNow()
		}
	}
	count := func(t *testing.T, cell int, selector string) string {
		t.Helper()
		return b.do(t, command{Do: "evaluate", Script: fmt.Sprintf("document.querySelectorAll(%q).length", b.find(cell, selector))})
	}
	step("open", func(t *testing.T) {
		b.do(t, command{Do: "open", URL: page("lab.ipynb", "light")})
		b.run(t, labImports)
		b.output(t, labImports, `kernel \d+`)
		b.do(t, command{Do: "wait", Selector: b.find(labText, ".jp-RenderedMarkdown table"), Pattern: "1.*2"})
	})
	step("figures", func(t *testing.T) {
		b.run(t, labFigures)
		b.outputWithFigures(t, labFigures, 2, `epoch_seconds.*speedup`)
		b.screenshot(t, labFigures, "lab-figures.png")
	})
	step("watch", func(t *testing.T) {
		b.run(t, labWatch)
		sweep := slurmStudy(filepath.Join(dir, "logs", "sweep"))
		sweep.freeze(t, 5, 2)
		b.outputWithFigures(t, labWatch, 1, row(1, "done")+row(2, `running[^\n]*[1-9]\d* of`))
		if n := count(t, labWatch, ".lockstep-runs"); n != "1" {
			t.Errorf("%s tables of runs, want one that is replaced", n)
		}
		b.screenshot(t, labWatch, "lab-watch.png")
		sweep.signal(t, 2, syscall.SIGCONT)
		b.outputWithFigures(t, labWatch, 1, row(1, "done")+row(2, "done")+"the sweep has ended")
		if n := count(t, labWatch, ".lockstep-runs"); n != "1" {
			t.Errorf("%s tables of runs at the end, want one", n)
		}
	})
	step("frames", func(t *testing.T) {
		b.run(t, labFrames)
		b.output(t, labFrames, "step 1 of 2")
		b.screenshot(t, labFrames, "lab-frames.png")
	})
	step("complete", func(t *testing.T) {
		b.do(t, command{Do: "click", Selector: b.find(labComplete, b.frontend.editor)})
		b.do(t, command{Do: "press", Keys: "End"})
		b.do(t, command{Do: "press", Keys: "Tab"})
		b.do(t, command{Do: "wait", Selector: ".jp-Completer", Pattern: "Speedup"})
		b.do(t, command{Do: "screenshot", Path: filepath.Join(browserFolder, "lab-complete.png")})
		b.do(t, command{Do: "press", Keys: "Enter"})
		b.do(t, command{Do: "wait", Selector: b.find(labComplete, b.frontend.editor), Pattern: "^figure.Speedup"})
	})
	step("inspect", func(t *testing.T) {
		b.do(t, command{Do: "click", Selector: b.find(labInspect, b.frontend.editor)})
		b.do(t, command{Do: "press", Keys: "End"})
		b.do(t, command{Do: "press", Keys: "Shift+Tab"})
		b.do(t, command{Do: "wait", Selector: ".jp-Tooltip", Pattern: "func Read"})
		b.do(t, command{Do: "screenshot", Path: filepath.Join(browserFolder, "lab-inspect.png")})
		b.do(t, command{Do: "press", Keys: "Escape"})
	})
	step("answer", func(t *testing.T) {
		b.run(t, labInput)
		b.do(t, command{Do: "click", Selector: ".jp-Stdin-input"})
		b.do(t, command{Do: "type", Text: "Ada"})
		b.screenshot(t, labInput, "lab-input.png")
		b.do(t, command{Do: "press", Keys: "Enter"})
		b.output(t, labInput, "hello Ada")
	})
	step("interrupt", func(t *testing.T) {
		b.run(t, labInterrupt)
		b.output(t, labInterrupt, "asleep")
		b.interrupt(t)
		b.output(t, labInterrupt, "interrupted")
		b.run(t, labAfter)
		b.output(t, labAfter, "kept 42")
	})
	step("error", func(t *testing.T) {
		b.run(t, labError)
		b.output(t, labError, "line 2.*divide by zero")
		b.screenshot(t, labError, "lab-error.png")
	})
	step("save and open in the dark theme", func(t *testing.T) {
		b.do(t, command{Do: "click", Selector: `[title^="Save the notebook"]`})
		path := filepath.Join(dir, "lab.ipynb")
		wait(t, "the saved notebook", func() bool {
			text, err := os.ReadFile(path)
			return err == nil && strings.Contains(string(text), "divide by zero") && strings.Contains(string(text), `figure.Speedup"`)
		}, func() string { return path })
		b.do(t, command{Do: "close"})
		b.do(t, command{Do: "open", URL: page("lab.ipynb", "dark")})
		for cell, name := range map[int]string{labFigures: "lab-dark-figures.png", labWatch: "lab-dark-watch.png", labFrames: "lab-dark-frames.png", labError: "lab-dark-error.png"} {
			b.screenshot(t, cell, name)
		}
	})
	step("restart", func(t *testing.T) {
		b.do(t, command{Do: "click", Selector: `[title="Restart the kernel"]`})
		b.do(t, command{Do: "click", Selector: ".jp-Dialog .jp-mod-accept"})
		b.run(t, labAfter)
		b.output(t, labAfter, "undefined identifier: fmt")
	})
	runAll := func(t *testing.T, notebook string) {
		t.Helper()
		b.do(t, command{Do: "close"})
		b.do(t, command{Do: "open", URL: page(notebook, "light")})
		b.do(t, command{Do: "click", Selector: `[title^="Restart the kernel, then"]`})
		b.do(t, command{Do: "click", Selector: ".jp-Dialog .jp-mod-accept"})
	}
	step("run all up to an error", func(t *testing.T) {
		writeNotebook(t, filepath.Join(dir, "stops.ipynb"), "zero := 0", "1 / zero", "2")
		runAll(t, "stops.ipynb")
		b.output(t, 1, "divide by zero")
		prompt := command{Do: "wait", Selector: b.find(2, ".jp-InputPrompt"), Pattern: `\[[^*]*\]`} // an asterisk while the cell waits
		if text := b.do(t, prompt); strings.TrimSpace(text) != "[ ]:" {
			t.Errorf("the cell after the error has the prompt %q: it was run", text)
		}
	})
	step("run all of published-results", func(t *testing.T) {
		err := os.CopyFS(filepath.Join(dir, "logs", "published"), os.DirFS(filepath.Join("..", "logs", "published")))
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, "notebooks"), 0o755)
		}
		const name = "notebooks/published-results.ipynb"
		var text []byte
		if err == nil {
			text, err = os.ReadFile(filepath.Join("..", name))
		}
		if err == nil {
			text = bytes.ReplaceAll(text, []byte(`"image/png"`), []byte(`"image/none"`)) // so that the figures below are of this run
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		runAll(t, name)
		b.do(t, command{Do: "wait", Selector: ".jp-Notebook", Figures: 16})
		b.do(t, command{Do: "screenshot", Path: filepath.Join(browserFolder, "lab-published.png")})
	})
	step("without trust", func(t *testing.T) {
		// The server remembers the content of the notebooks that it has saved and trusts them. It does not know
		// this one.
		text, err := os.ReadFile(filepath.Join(dir, "lab.ipynb"))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "stranger.ipynb"), bytes.Replace(text, []byte("# Title"), []byte("# Another title"), 1), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.do(t, command{Do: "close"})
		b.do(t, command{Do: "open", URL: page("stranger.ipynb", "light")})
		b.outputWithFigures(t, labFigures, 2, "epoch_seconds.*speedup")
		b.outputWithFigures(t, labWatch, 1, row(1, "done")+row(2, "done"))
		b.outputWithFigures(t, labFrames, 3, "before the first step.*step 1 of 2.*step 2 of 2")
		for cell, name := range map[int]string{labFigures: "lab-untrusted-figures.png", labWatch: "lab-untrusted-watch.png", labFrames: "lab-untrusted-frames.png"} {
			b.screenshot(t, cell, name)
		}
	})
}

// startLab starts a Jupyter server for the folder dir, with the kernel below prefix, until the end
// of the test. It returns a function that returns the address of the page with a notebook of that
// folder, in the theme "light" or "dark". It skips the test if something that it needs is not
// installed.
func startLab(t *testing.T, dir, prefix string) (page func(notebook, theme string) string) {
	t.Helper()
	built, err := filepath.Abs(filepath.Join(browserFolder, "lab"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(built, "index.html")); err != nil {
		t.Skip("the page with JupyterLab's notebook is not built: environment/test builds it")
	}
	py := python(t)
	if exec.Command(py, "-c", "import jupyter_server").Run() != nil {
		t.Skip("no jupyter-server on this machine")
	}
	// Below files/, the server would not let the page load its script.
	paths, err := json.Marshal([]string{built})
	if err != nil {
		t.Fatal(err)
	}
	server := startServer(t, prefix, "jpserver", py, "-m", "jupyter_server", "--ServerApp.token="+serverToken, "--ServerApp.root_dir="+dir,
		"--ServerApp.extra_static_paths="+string(paths))
	return func(notebook, theme string) string {
		return server + "static/index.html?" + url.Values{"token": {serverToken}, "path": {notebook}, "theme": {theme}}.Encode()
	}
}
