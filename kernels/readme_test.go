package kernels

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// claims matches a cell of the page and, quoted below it, what it shows.
var claims = regexp.MustCompile("(?m)^```go\n((?s:.*?))^```\n((?:^> .*\n)+)")

// Every cell of the page about the interpreter, those that fail and the ways
// round them, is run, one after the other in one session.
func TestNotebookPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "notebooks", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := claims.FindAllStringSubmatch(string(page), -1)
	if n := strings.Count(string(page), "```go\n"); n != len(found) || n < 20 {
		t.Fatalf("the page has %d cells, %d of them say what they show", n, len(found))
	}
	var code []string
	for _, f := range found {
		code = append(code, f[1])
	}
	for i, a := range drive(t, cells(code...)...) {
		var shown strings.Builder
		for _, m := range a.Messages {
			text, _ := m.Content.Data["text/plain"].(string)
			shown.WriteString(m.Content.Text + m.Content.Value + text)
		}
		want := strings.TrimSpace(strings.ReplaceAll("\n"+found[i][2], "\n> ", "\n"))
		got := strings.TrimSpace(shown.String())
		// Of an error the page quotes a part; everything else it quotes whole.
		if got != want && !(a.Reply.Status == "error" && strings.Contains(got, want)) {
			t.Errorf("cell\n%sshows %q, the page says %q", code[i], got, want)
		}
	}
}

// TestReadmeFirstCells runs the cells of README's section "The first cell" in an
// empty folder, then once more in the same session, and in a session of the next
// day. Only the number of epochs is smaller than on the page.
func TestReadmeFirstCells(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "## The first cell\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```").FindAllStringSubmatch(section, -1)
	if !found || len(blocks) < 5 || strings.Count(section, "Resume: true") != 1 {
		t.Fatalf("README has %d first cells, want at least 5, one of them with Resume: true", len(blocks))
	}
	dir := t.TempDir()
	code := []string{fmt.Sprintf("import \"os\"\nos.Chdir(%q); os.Unsetenv(\"LOCKSTEP_LOGS\")", dir)}
	for _, b := range blocks {
		code = append(code, strings.Replace(b[1], "Resume: true", "Resume: true, Epochs: 2", 1))
	}
	first := append(code, code[1:]...)
	for session, list := range [][]string{first, code} {
		figures, done := 0, 0
		for i, a := range drive(t, cells(list...)...) {
			if a.Reply.Status != "ok" {
				t.Fatalf("session %d: cell\n%s\nfailed:\n%s", session, list[i], a.show())
			}
			for _, m := range a.Messages {
				if svg, _ := m.Content.Data["image/svg+xml"].(string); strings.Contains(svg, "</svg>") && m.Type == "execute_result" {
					figures++
				}
			}
			done += strings.Count(a.show(), "6 runs done; nothing to do")
		}
		if want := 2 - session; figures != 2*want {
			t.Errorf("session %d: %d figures, want %d", session, figures, 2*want)
		}
		if done != 1 {
			t.Errorf("session %d: %d times there was nothing to do, want once", session, done)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "logs", "unet2d-cells", "ddp-n2-s3", "run.json")); err != nil {
		t.Error(err)
	}
}
