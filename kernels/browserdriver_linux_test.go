package kernels

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/report"
)

// pageTimeout limits the time of each command to the browser. It is much more than any takes on an
// idle machine.
const pageTimeout = 4 * time.Minute

// browserFolder is the folder into which environment/test installs playwright-core, and to which
// the browser's screenshots are written.
var browserFolder = filepath.Join("..", "environment", ".cache", "browser")

// A browser is Chromium with a page that shows a notebook; see environment/browser/driver.cjs.
type browser struct {
	frontend frontend
	in       io.Writer
	answers  *bufio.Reader
	pages    int // screenshots of failures
}

// A frontend is a kind of page with a notebook, described by CSS selectors.
type frontend struct {
	cell      string // of a cell; %d is its number plus first
	first     int
	editor    string // within a cell
	output    string // within a cell
	interrupt string // the button that interrupts the kernel
}

// classic is the classic notebook.
var classic = frontend{
	cell: "#notebook-container > .cell:nth-child(%d)", first: 1, editor: ".CodeMirror", output: ".output_wrapper",
	interrupt: `button[data-jupyter-action="jupyter-notebook:interrupt-kernel"]`,
}

// startBrowser starts Chromium until the end of the test. It skips the test if something that it
// needs is not installed.
func startBrowser(t *testing.T, f frontend) *browser {
	t.Helper()
	chromium, err := report.FindBrowser()
	if err != nil {
		t.Skip("no chromium on this machine")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node on this machine: install nodejs and npm, and run environment/test")
	}
	modules, err := filepath.Abs(filepath.Join(browserFolder, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "playwright-core")); err != nil {
		t.Skip("playwright-core is not installed: environment/test installs it")
	}
	c := exec.Command(node, filepath.Join("..", "environment", "browser", "driver.cjs"))
	c.Env = append(os.Environ(), "CHROMIUM="+chromium, "NODE_PATH="+modules)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	startProcess(t, c)
	t.Cleanup(func() { _ = in.Close() }) // upon which the driver ends
	return &browser{frontend: f, in: in, answers: bufio.NewReader(out)}
}

// startProcess starts c in a process group of its own, and registers a cleanup that waits for its
// end. After a minute it kills the group.
func startProcess(t *testing.T, c *exec.Cmd) {
	t.Helper()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kill := time.AfterFunc(time.Minute, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
		defer kill.Stop()
		_ = c.Wait()
	})
}

// command is a command to the driver.
type command struct {
	Do       string  `json:"do"`
	URL      string  `json:"url,omitempty"`
	Selector string  `json:"selector,omitempty"`
	Pattern  string  `json:"pattern,omitempty"`
	Figures  int     `json:"figures,omitempty"`
	Keys     string  `json:"keys,omitempty"`
	Text     string  `json:"text,omitempty"`
	Script   string  `json:"script,omitempty"`
	Path     string  `json:"path,omitempty"`
	Seconds  float64 `json:"seconds"`
}

// do sends a command to the driver and returns the text of its answer. If the driver answers with an
// error, the test fails with the text of the page.
func (b *browser) do(t *testing.T, c command) string {
	t.Helper()
	text, err := b.try(c)
	if err != nil {
		b.pages++
		path := filepath.Join(browserFolder, fmt.Sprintf("failed-%d.png", b.pages))
		_, _ = b.try(command{Do: "screenshot", Path: path})
		t.Fatalf("%+v: %v\nscreenshot: %s\npage:\n%s", c, err, path, text)
	}
	return text
}

// try sends a command to the driver. If the driver reports an error, try returns the error and the
// text of the page.
func (b *browser) try(c command) (text string, err error) {
	c.Seconds = pageTimeout.Seconds()
	line, err := json.Marshal(c)
	if err == nil {
		_, err = b.in.Write(append(line, '\n'))
	}
	if err != nil {
		return "", err
	}
	if line, err = b.answers.ReadBytes('\n'); err != nil {
		return "", fmt.Errorf("read answer of the browser's driver: %w", err)
	}
	var answer struct{ Text, Error string }
	if err := json.Unmarshal(line, &answer); err != nil {
		return "", err
	}
	if answer.Error != "" {
		return answer.Text, errors.New(answer.Error)
	}
	return answer.Text, nil
}

// find returns the CSS selector of the part of a cell that selector describes.
func (b *browser) find(cell int, selector string) string {
	return fmt.Sprintf(b.frontend.cell, cell+b.frontend.first) + " " + selector
}

// run runs a cell by Ctrl-Enter and does not wait for its end.
func (b *browser) run(t *testing.T, cell int) {
	t.Helper()
	b.do(t, command{Do: "click", Selector: b.find(cell, b.frontend.editor)})
	b.do(t, command{Do: "press", Keys: "Control+Enter"})
}

// output waits until the output of a cell matches pattern and returns it.
func (b *browser) output(t *testing.T, cell int, pattern string) string {
	t.Helper()
	return b.outputWithFigures(t, cell, 0, pattern)
}

// outputWithFigures is like output, but also waits until the output has a number of figures.
func (b *browser) outputWithFigures(t *testing.T, cell, figures int, pattern string) string {
	t.Helper()
	return b.do(t, command{Do: "wait", Selector: b.find(cell, b.frontend.output), Pattern: pattern, Figures: figures})
}

// interrupt clicks on the button that interrupts the kernel.
func (b *browser) interrupt(t *testing.T) {
	t.Helper()
	b.do(t, command{Do: "click", Selector: b.frontend.interrupt})
}

// screenshot saves what the browser shows, with the output of a cell in view.
func (b *browser) screenshot(t *testing.T, cell int, name string) {
	t.Helper()
	b.do(t, command{Do: "screenshot", Path: filepath.Join(browserFolder, name), Selector: b.find(cell, b.frontend.output)})
}

// startJupyter starts the classic notebook server in the folder dir until the end of the test, with
// the kernel below prefix, and returns the address of the notebook sweep.ipynb, which has the given
// cells. It skips the test if this machine has another notebook server.
func startJupyter(t *testing.T, dir, prefix string, cells ...string) (url string) {
	t.Helper()
	py := python(t)
	if out, err := exec.Command(py, "-c", "import notebook; print(notebook.__version__)").Output(); err != nil || !strings.HasPrefix(string(out), "6.") {
		t.Skipf("no classic notebook on this machine: want version 6, got %q", out)
	}
	writeNotebook(t, filepath.Join(dir, "sweep.ipynb"), cells...)
	return startServer(t, prefix, "nbserver", py, "-m", "notebook", "--no-browser", "--NotebookApp.token="+serverToken, "--notebook-dir="+dir) +
		"notebooks/sweep.ipynb?token=" + serverToken
}

// serverToken is the password of the servers that tests start.
const serverToken = "of-this-test"

// startServer starts a Jupyter server until the end of the test, with the kernel below prefix, and
// returns its address. name is the beginning of the name of the file with the address that it
// writes.
func startServer(t *testing.T, prefix, name string, args ...string) (url string) {
	t.Helper()
	settings := t.TempDir()
	log, err := os.Create(filepath.Join(settings, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := exec.Command(args[0], append(args[1:], "--allow-root", "--ip=127.0.0.1", fmt.Sprintf("--port=%d", freePort(t)))...)
	c.Env = append(os.Environ(), "JUPYTER_PATH="+filepath.Join(prefix, "share", "jupyter"),
		"JUPYTER_CONFIG_DIR="+settings, "JUPYTER_DATA_DIR="+settings, "JUPYTER_RUNTIME_DIR="+settings)
	c.Stdout, c.Stderr = log, log
	startProcess(t, c)
	readLog := func() string { text, _ := os.ReadFile(log.Name()); return string(text) }
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // upon which it ends its kernels
		if t.Failed() {
			t.Logf("log of the notebook server:\n%s", readLog())
		}
	})
	// The server writes this file when it listens. It takes another port if its own is in use.
	var server struct{ URL string }
	wait(t, "the notebook server", func() bool {
		text, err := os.ReadFile(filepath.Join(settings, fmt.Sprintf("%s-%d.json", name, c.Process.Pid)))
		return err == nil && json.Unmarshal(text, &server) == nil
	}, readLog)
	return server.URL
}

// freePort returns a port of this machine on which nothing listens.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// wait waits until condition is true. If it is not after pageTimeout, the test fails and shows the
// result of describe.
func wait(t *testing.T, what string, condition func() bool, describe func() string) {
	t.Helper()
	for deadline := time.Now().Add(pageTimeout); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s: %s", pageTimeout, what, describe())
		}
	}
}
