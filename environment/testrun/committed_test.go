package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// notebooksWithoutOutputs returns the notebooks that are committed without outputs, and why.
func notebooksWithoutOutputs() map[string]string {
	return map[string]string{
		"notebooks/first-gpu-kernel.ipynb": "it needs a GPU and the kernel with gorgonia.org/cu; without them its outputs only say what was left out",
	}
}

// Limits of committed notebooks in bytes, as in environment/committed.py. Code-hosting pages do not show large
// notebooks, and every new version of an output stays in the history.
const (
	maxCommittedNotebook = 300_000
	maxAllNotebooks      = 2_000_000
)

// TestCommittedOutputs checks the notebooks as a person sees them who opens them on a code-hosting page.
func TestCommittedOutputs(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	without, total := notebooksWithoutOutputs(), 0
	root := filepath.Join("..", "..")
	for _, pattern := range []string{"notebooks/*.ipynb", "notebooks/course/*.ipynb"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			total += len(text)
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			if err := checkCommitted(text, without[name] == "", host); err != nil {
				t.Errorf("%s: %v; run environment/execute-notebook --commit %[1]s", name, err)
			}
			delete(without, name)
		}
	}
	if total > maxAllNotebooks {
		t.Errorf("all notebooks together have %d bytes, more than %d: show fewer figures", total, maxAllNotebooks)
	}
	for name := range without {
		t.Errorf("%s is in the list of notebooks without outputs, but does not exist", name)
	}
}

// checkCommitted returns an error if a notebook is too large, was changed after it was executed, names a folder
// of the machine that executed it or its host, or is not as checkNotebook demands. If outputs is false, it must
// have no outputs.
func checkCommitted(text []byte, outputs bool, host string) error {
	var nb struct {
		Metadata struct {
			Lockstep struct {
				Sources string `json:"sources"`
			} `json:"lockstep"`
		} `json:"metadata"`
		Cells []struct {
			Type    string          `json:"cell_type"`
			Source  json.RawMessage `json:"source"`
			Outputs []struct {
				Text json.RawMessage            `json:"text"`
				Data map[string]json.RawMessage `json:"data"`
			} `json:"outputs"`
		} `json:"cells"`
	}
	if err := json.Unmarshal(text, &nb); err != nil {
		return fmt.Errorf("read notebook: %w", err)
	}
	if len(text) > maxCommittedNotebook {
		return fmt.Errorf("it has %d bytes, more than %d", len(text), maxCommittedNotebook)
	}
	var sources strings.Builder
	for i, c := range nb.Cells {
		source, err := decodeMultilineString(c.Source)
		if err != nil {
			return fmt.Errorf("cell %d: %w", i+1, err)
		}
		fmt.Fprintf(&sources, "%s\x00%s\x00", c.Type, source)
		if !outputs && len(c.Outputs) > 0 {
			return fmt.Errorf("cell %d has outputs, but the notebook is in the list of notebooks without outputs", i+1)
		}
	}
	if !outputs {
		return nil
	}
	if hash := sha256.Sum256([]byte(sources.String())); nb.Metadata.Lockstep.Sources != hex.EncodeToString(hash[:]) {
		return errors.New("its outputs are not of its cells: the hash of the sources in its metadata differs")
	}
	private := `/(home|root|Users|tmp|var/folders)/`
	if !strings.Contains(sources.String(), host) { // else it is an ordinary word, such as "server"
		private += `|\b` + regexp.QuoteMeta(host) + `\b`
	}
	for i, c := range nb.Cells {
		for _, o := range c.Outputs {
			shown := string(o.Text)
			for format, content := range o.Data {
				if !strings.HasPrefix(format, "image/") {
					shown += " " + string(content)
				}
			}
			if name := regexp.MustCompile(private).FindString(shown); name != "" {
				return fmt.Errorf("an output of cell %d names %s of the machine that executed it", i+1, name)
			}
		}
	}
	_, err := checkNotebook(text)
	return err
}

func TestCheckCommitted(t *testing.T) {
	// The hash is of "code", 0, "x", 0.
	const hash = "e7589544457d290cbe5a82de83f568d763c3596704c9e74ae6e6ea6c6d67cfee"
	notebook := func(source, output string) []byte {
		return fmt.Appendf(nil, `{"metadata":{"lockstep":{"sources":"%s"}},"cells":[{"cell_type":"code","source":%q,"execution_count":1,"outputs":[
			{"output_type":"display_data","data":{"image/png":"iVBORw0KGgo="}}%s]}]}`, hash, source, output)
	}
	stream := func(name, text string) string {
		return fmt.Sprintf(`,{"output_type":"stream","name":%q,"text":[%q]}`, name, text)
	}
	for _, c := range []struct {
		name string
		text []byte
		want string // part of the error; "" if there is none
	}{
		{"as it was executed", notebook("x", stream("stdout", "~/lockstep/logs")), ""},
		{"another source", notebook("y", ""), "hash of the sources"},
		{"a home folder", notebook("x", stream("stdout", "in /home/ada/logs")), "cell 1 names /hom"},
		{"a temporary folder", notebook("x", stream("stdout", "/tmp/runs-1")), "cell 1 names /tm"},
		{"the machine", notebook("x", stream("stdout", "rank 0 on machine7")), "cell 1 names machine7"},
		{"an image that contains its name by chance", notebook("x", `,{"output_type":"display_data","data":{"image/png":"a/machine7/tmp/"}}`), ""},
		{"a word that contains the machine's name", notebook("x", stream("stdout", "machine71")), ""},
		{"standard error", notebook("x", stream("stderr", "warning")), "standard error"},
		{"an error", notebook("x", `,{"output_type":"error","ename":"ERROR","evalue":"division by zero","traceback":[]}`), "division by zero"},
		{"too large", notebook("x", stream("stdout", string(bytes.Repeat([]byte("x"), maxCommittedNotebook)))), "more than 300000"},
		{"not JSON", []byte("{"), "read notebook"},
	} {
		err := checkCommitted(c.text, true, "machine7")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !bytes.Contains([]byte(err.Error()), []byte(c.want))) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if err := checkCommitted(notebook("x", ""), false, "machine7"); err == nil {
		t.Error("outputs of a notebook that shall have none are accepted")
	}
}
