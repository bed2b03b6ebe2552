package pkg_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRecipesNameWhatExists checks that the files and functions that the recipes of
// CONTRIBUTING name exist, so that a rename does not make a recipe wrong.
func TestRecipesNameWhatExists(t *testing.T) {
	text, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## Recipes\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	recipes := strings.Split(rest, "\n### ")[1:]
	if len(recipes) != 4 {
		t.Fatalf("CONTRIBUTING has %d recipes, want 4", len(recipes))
	}
	code := regexp.MustCompile("`[^`]+`")
	goFile := regexp.MustCompile(`pkg/[\w/]+\.go`)
	qualified := regexp.MustCompile(`\b([a-z]\w*)\.[A-Z]`) // a package, or a variable
	call := regexp.MustCompile(`\b(\w+)\(`)
	placeholder := regexp.MustCompile(`^(func|new|read)?[nN]ame`) // a name that the reader of the recipe chooses
	for _, recipe := range recipes {
		title, _, _ := strings.Cut(recipe, "\n")
		dirs := map[string]bool{}
		for _, file := range goFile.FindAllString(recipe, -1) {
			dir, name := filepath.Split(strings.TrimPrefix(file, "pkg/"))
			dirs[dir] = true
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil && !strings.HasPrefix(name, "NAME") {
				t.Errorf("%s: %v", title, err)
			}
		}
		for _, m := range qualified.FindAllStringSubmatch(recipe, -1) {
			for _, pattern := range []string{m[1], "*/internal/" + m[1]} {
				found, _ := filepath.Glob(pattern)
				for _, dir := range found {
					dirs[dir] = true
				}
			}
		}
		source, calls := sourceOf(t, dirs), 0
		for _, span := range code.FindAllString(recipe, -1) {
			for _, m := range call.FindAllStringSubmatch(span, -1) {
				if placeholder.MatchString(m[1]) || m[1] == "func" {
					continue
				}
				calls++
				if !regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|\t)` + m[1] + `[\[(]`).MatchString(source) {
					t.Errorf("%s: no function or method %s, which the recipe names as %s", title, m[1], span)
				}
			}
		}
		if calls == 0 {
			t.Errorf("%s: found no call of a function: is the test wrong?", title)
		}
	}
}

// sourceOf returns the Go files of folders as one text.
func sourceOf(t *testing.T, dirs map[string]bool) string {
	t.Helper()
	var text strings.Builder
	for dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("folder %s has %d Go files, %v", dir, len(files), err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(b)
		}
	}
	return text.String()
}
