package kernels

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/report"
)

// executeNotebook runs environment/execute-notebook with the kernel below prefix, and returns what it printed.
func executeNotebook(t *testing.T, prefix string, args ...string) (string, error) {
	t.Helper()
	py := python(t)
	if exec.Command(py, "-c", "import nbclient, PIL").Run() != nil {
		t.Skip("no Pillow on this machine; apt-get install python3-pil")
	}
	if _, err := report.FindBrowser(); err != nil {
		t.Skip("no chromium on this machine")
	}
	cmd := exec.Command(py, append([]string{filepath.Join("..", "environment", "execute-notebook")}, args...)...)
	cmd.Env = append(os.Environ(), "JUPYTER_PATH="+filepath.Join(prefix, "share", "jupyter"), "HOME="+prefix, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// committedOutputs returns the outputs of each cell of a notebook. An output is described by its formats and texts,
// and an image by its width and number of colors.
func committedOutputs(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var nb struct {
		Cells []struct {
			Outputs []struct {
				Type string `json:"output_type"`
				Text []string
				Data struct {
					Plain []string        `json:"text/plain"`
					HTML  []string        `json:"text/html"`
					JSON  json.RawMessage `json:"application/json"`
					PNG   []byte          `json:"image/png"`
					SVG   []string        `json:"image/svg+xml"`
				}
			}
		}
	}
	if err := json.Unmarshal(text, &nb); err != nil {
		t.Fatal(err)
	}
	shown := make([]string, len(nb.Cells))
	for i, c := range nb.Cells {
		for _, o := range c.Outputs {
			shown[i] += o.Type + " " + strings.Join(o.Text, "") + strings.Join(o.Data.Plain, "") + strings.Join(strings.Fields(string(o.Data.JSON)), "") + "|" + strings.Join(o.Data.HTML, "") + strings.Join(o.Data.SVG, "")
			if o.Data.PNG != nil {
				drawn, err := png.Decode(bytes.NewReader(o.Data.PNG))
				if err != nil {
					t.Fatal(err)
				}
				colors := map[any]bool{}
				for y := range drawn.Bounds().Dy() {
					for x := range drawn.Bounds().Dx() {
						colors[drawn.At(x, y)] = true
					}
				}
				shown[i] += fmt.Sprintf("image of %d pixels and at most 64 colors: %t|", drawn.Bounds().Dx(), len(colors) > 2 && len(colors) <= 64)
			}
		}
	}
	return shown
}

func TestCommit(t *testing.T) {
	t.Parallel()
	prefix, dir := install(t, kernelDir(t)), t.TempDir()
	path := filepath.Join(dir, "small.ipynb")
	writeNotebook(t, path,
		"import (\n\"fmt\"\n\"os\"\n\"path/filepath\"\n\"gonum.org/v1/plot\"\n\"lockstep/pkg/notebook\"\n\"github.com/go-gota/gota/dataframe\"\n\"github.com/go-gota/gota/series\"\n)\n",
		"dir := os.MkdirTemp(\"\", \"mine-\")\nfmt.Println(dir)\nfmt.Println(os.Getenv(\"LOCKSTEP_LOGS\") + \"/study\")\nhome := os.UserHomeDir()\nfmt.Println(home + \"/data\")\nhost := os.Hostname()\nfmt.Println(\"rank 0 on\", host, host + \"x\")\nfmt.Print(\"10 %\\r20 %\\n\")",
		"p := plot.New()\np.Title.Text = \"a plot\"\np",
		"rows := make([]int, 30)\nfor i := range rows { rows[i] = 100 + i }\ndataframe.New(series.New(rows, series.Int, \"row\"))",
		"live := notebook.NewLive()\nlive.Show(\"half\")\nlive.Show(\"whole\")",
		"type Page struct{}\nfunc (Page) HTML() string { return \"<div id='a1'><style>p {}</style><script>run()</script><details><summary>Why</summary><p class='x'>1 &lt; 2</p></details></div>\" }\nfunc (Page) JSON() map[string]interface{} { return map[string]interface{}{\"folder\": os.Getenv(\"LOCKSTEP_LOGS\")} }\nPage{}",
		"# Text")
	if out, err := executeNotebook(t, prefix, "--commit", path); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	got := committedOutputs(t, path)
	for i, want := range []string{
		"",
		"stream ~/temp/mine-1\n~/lockstep/logs/study\n~/data\nrank 0 on host " + host + "x\n20 %\n|",
		"execute_result (plot: a plot)|image of 800 pixels and at most 64 colors: true|",
		"",
		"display_data whole|",
		`execute_result {"folder":"~/lockstep/logs"}|Why: <p>1 &lt; 2</p>` + "\n",
		"",
	} {
		if i != 3 && got[i] != want {
			t.Errorf("cell %d has the outputs\n%s, want\n%s", i, got[i], want)
		}
	}
	if !strings.Contains(got[3], "<td>119</td>") || strings.Contains(got[3], "<td>120</td>") || !strings.Contains(got[3], "10 more rows") {
		t.Errorf("a table of 30 rows is\n%s", got[3])
	}
	if out, err := executeNotebook(t, prefix, "--commit", path); err != nil {
		t.Fatalf("a second time: %v\n%s", err, out)
	}
	if second, err := os.ReadFile(path); err != nil || !bytes.Equal(first, second) {
		t.Errorf("a second run wrote other bytes (%v)\n%s", err, second)
	}

	for _, c := range []struct{ name, code, want string }{
		{"large", "import (\n\"fmt\"\n\"strings\"\n)\nfmt.Print(strings.Repeat(\"x \", 160000))", "320 kB in cell 1"},
		{"stderr", "import (\n\"fmt\"\n\"os\"\n)\nfmt.Fprint(os.Stderr, \"careful\")", "cell 1: it wrote to stderr: careful"},
		{"fails", "import \"os\"\nos.ReadFile(\"no-such-file\")", "no such file"},
	} {
		path := filepath.Join(dir, c.name+".ipynb")
		writeNotebook(t, path, c.code)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := executeNotebook(t, prefix, "--commit", path); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, want %q in\n%s", c.name, err, c.want, out)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: the notebook was changed (%v)", c.name, err)
		}
	}

	stale, executed := filepath.Join(dir, "stale.ipynb"), filepath.Join(dir, "executed.ipynb")
	writeNotebook(t, stale, "1 / 0", "2")
	text, err := os.ReadFile(stale)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte(`"outputs":[]`), []byte(`"outputs":[{"name":"stdout","output_type":"stream","text":["old"]}]`))
	if err := os.WriteFile(stale, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := executeNotebook(t, prefix, stale, executed); err == nil || committedOutputs(t, executed)[1] != "" {
		t.Errorf("after a cell that failed, the next has the outputs %q (%v)\n%s", committedOutputs(t, executed)[1], err, out)
	}
}
