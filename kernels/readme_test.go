package kernels

import (
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
