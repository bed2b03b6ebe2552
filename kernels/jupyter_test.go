package kernels

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"lockstep/kernels/kernelspec"
)

const buildCommand = "go run ./kernels/build"

// kernelDir finds the folder of the built binaries, or skips the test. A kernel
// that was built from other sources than those that lie here does not count.
func kernelDir(t *testing.T) string {
	t.Helper()
	dir, err := findKernel()
	if errors.Is(err, errNotBuilt) {
		t.Skip("kernel not built: run " + buildCommand)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var errNotBuilt = errors.New("kernel not built")

var findKernel = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("LOCKSTEP_KERNEL_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	if os.Getenv("LOCKSTEP_KERNEL_BUILD") == "1" {
		if out, err := goRun("./build"); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", buildCommand, err, out)
		}
	}
	dir, err := filepath.Abs(filepath.Join(".build", "bin"))
	if err != nil {
		return "", err
	}
	version, err := exec.Command(filepath.Join(dir, "lockstep-kernel"), "--version").Output()
	if err != nil {
		return "", errNotBuilt
	}
	id, err := goRun("./build", "-id")
	if err != nil {
		return "", fmt.Errorf("%s -id: %w\n%s", buildCommand, err, id)
	}
	if strings.TrimSpace(string(version)) != "lockstep-kernel "+strings.TrimSpace(id) {
		return "", errNotBuilt
	}
	return dir, nil
})

func goRun(args ...string) (string, error) {
	out, err := exec.Command("go", append([]string{"run"}, args...)...).CombinedOutput()
	return string(out), err
}

// python finds an interpreter that has jupyter_client, or skips the test.
func python(t *testing.T) string {
	t.Helper()
	for _, p := range []string{os.Getenv("LOCKSTEP_PYTHON"), "python3", "/usr/bin/python3"} {
		if p != "" && exec.Command(p, "-c", "import jupyter_client").Run() == nil {
			return p
		}
	}
	t.Skip("jupyter_client: no python3 has it; apt-get install jupyter-client, or set LOCKSTEP_PYTHON")
	return ""
}

// install makes a kernelspec of the kernel in dir, in a folder of the test's own,
// and returns its prefix.
func install(t *testing.T, dir string) string {
	t.Helper()
	prefix := t.TempDir()
	command := filepath.Join(dir, "lockstep")
	if _, err := os.Stat(command); err != nil {
		// A folder given by LOCKSTEP_KERNEL_DIR may hold the kernel alone; these
		// tests start no workers.
		command = filepath.Join(t.TempDir(), "lockstep")
		if err := os.WriteFile(command, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err := kernelspec.Install(kernelspec.Options{
		Prefix: prefix, Kernel: filepath.Join(dir, "lockstep-kernel"), Command: command,
	})
	if err != nil {
		t.Fatal(err)
	}
	return prefix
}

// A step is one request to the kernel; see testdata/driver.py.
type step struct {
	Execute        string   `json:"execute,omitempty"`
	InterruptOn    string   `json:"interrupt_on,omitempty"`
	InterruptAfter *float64 `json:"interrupt_after,omitempty"`
	AgainAfter     *float64 `json:"again_after,omitempty"` // seconds from the first interrupt to a second
	Input          []string `json:"input"`                 // what the person at the notebook answers
	Repeat         int      `json:"repeat,omitempty"`      // runs the cell so often; the answer is the last one's
	Timeout        float64  `json:"timeout,omitempty"`
	Dies           bool     `json:"dies,omitempty"` // the cell ends the kernel; a restart follows
	Complete       string   `json:"complete,omitempty"`
	Detail         int      `json:"detail,omitempty"`
	Inspect        string   `json:"inspect,omitempty"`
	Pos            int      `json:"pos,omitempty"`
	KernelInfo     bool     `json:"kernel_info,omitempty"`
	Queue          []string `json:"queue,omitempty"`   // cells to send at once; the answers are in the field Queue
	Go             bool     `json:"go,omitempty"`      // with Queue: a failed cell does not abort the next ones
	Restart        bool     `json:"restart,omitempty"` // kills the kernel and starts another
	Leave          bool     `json:"leave,omitempty"`   // lets clients ask and disconnect before the answer
}

// A message is one thing that the kernel published for a cell.
type message struct {
	Type    string  `json:"type"`
	At      float64 `json:"at"` // seconds since the cell was sent
	Content struct {
		Name      string         `json:"name"`
		Text      string         `json:"text"`
		Value     string         `json:"evalue"`
		Data      map[string]any `json:"data"`
		Transient map[string]any `json:"transient"`
	} `json:"content"`
}

// An answer is what came back for a step.
type answer struct {
	Messages []message `json:"messages"`
	Reply    struct {
		Status string         `json:"status"`
		Value  string         `json:"evalue"`
		Found  bool           `json:"found"`
		Data   map[string]any `json:"data"`

		Matches []string `json:"matches"`
		Start   int      `json:"cursor_start"`
		End     int      `json:"cursor_end"`

		Implementation        string `json:"implementation"`
		ImplementationVersion string `json:"implementation_version"`
		Banner                string `json:"banner"`

		LanguageInfo struct {
			Name          string `json:"name"`
			MIMEType      string `json:"mimetype"`
			PygmentsLexer string `json:"pygments_lexer"`
		} `json:"language_info"`
	} `json:"reply"`
	Queue         []string `json:"queue"`         // for each cell the status of its reply and what it printed
	Memory        int64    `json:"memory"`        // resident bytes of the kernel after the cell
	Ready         float64  `json:"ready_seconds"` // of the first answer alone
	Seconds       float64  `json:"seconds"`
	InterruptedAt *float64 `json:"interrupted_at"`
	Alive         bool     `json:"alive"`
	Error         string   `json:"error"`
}

// drive runs steps on one fresh kernel.
func drive(t *testing.T, steps ...step) []answer {
	t.Helper()
	answers, _ := driveTimed(t, steps...)
	return answers
}

// driveTimed also returns how many seconds the kernel took to be ready.
func driveTimed(t *testing.T, steps ...step) ([]answer, float64) {
	t.Helper()
	return driveKernel(t, kernelDir(t), steps...)
}

// driveKernel is driveTimed on the kernel in dir.
func driveKernel(t *testing.T, dir string, steps ...step) ([]answer, float64) {
	t.Helper()
	py, prefix := python(t), install(t, dir)
	in, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(py, filepath.Join("testdata", "driver.py"), prefix)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Env = append(os.Environ(), "LOCKSTEP_LOCKS="+t.TempDir())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("driver: %v\n%s", err, &errs)
	}
	var answers []answer
	if err := json.Unmarshal(out, &answers); err != nil {
		t.Fatalf("driver printed %q: %v", out, err)
	}
	ready := answers[0].Ready
	answers = answers[1:]
	if len(answers) != len(steps) {
		t.Fatalf("%d answers to %d steps", len(answers), len(steps))
	}
	for i, a := range answers {
		if a.Error != "" {
			t.Fatalf("step %d, %q: %s", i, steps[i].Execute, a.Error)
		}
		if steps[i].Execute != "" && a.Alive == steps[i].Dies {
			t.Fatalf("step %d, %q: the kernel lives: %v", i, steps[i].Execute, a.Alive)
		}
	}
	return answers, ready
}

// cells makes a step of each cell.
func cells(code ...string) []step {
	var steps []step
	for _, c := range code {
		steps = append(steps, step{Execute: c})
	}
	return steps
}

// show writes what a cell showed in one line a message: a stream's name and
// text, a result's or display's MIME types and text, an error's message.
func (a answer) show() string {
	var lines []string
	for _, m := range a.Messages {
		switch m.Type {
		case "stream":
			lines = append(lines, fmt.Sprintf("%s %q", m.Content.Name, m.Content.Text))
		case "error":
			lines = append(lines, fmt.Sprintf("error %q", m.Content.Value))
		default:
			lines = append(lines, fmt.Sprintf("%s %q", m.Type, m.Content.Data["text/plain"]))
		}
	}
	return strings.Join(lines, "\n")
}
