package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestKernelTree: the files of the overlay and the kernel's own are files of the
// tree, at the places where the compiler sees them; other folders are links.
func TestKernelTree(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("pkg/a/a.go", "package a")
	write("environment/sites/sites.go", "package sites")
	write("kernels/internal/b/b.go", "package b")
	write("kernels/lockstep-kernel/own.go", "package main // own")
	write("go.mod", "module lockstep")
	write(".golangci.yml", "version: 2")
	write("kernels/.build/gen/go.mod", "module lockstep // of the kernel")
	write("kernels/.build/gen/go.sum", "")
	shown := map[string]string{
		filepath.Join(root, "kernels/lockstep-kernel/reg_fmt/reg.go"): write("kernels/.build/gen/reg_fmt/reg.go", "package reg_fmt"),
		filepath.Join(root, "kernels/.build/gomacro/go.mod"):          write("elsewhere/go.mod", "module gomacro"),
	}
	overlay := func() {
		text, err := json.Marshal(map[string]any{"Replace": shown})
		if err != nil {
			t.Fatal(err)
		}
		write("kernels/.build/gen/overlay.json", string(text))
	}
	overlay()
	tree := filepath.Join(root, "kernels/.build/vet")
	for range 2 { // the second time in place of the first
		if err := writeKernelTree(root, tree); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"go.mod":                                 "module lockstep // of the kernel",
		"pkg/a/a.go":                             "package a",
		"environment/sites/sites.go":             "package sites",
		"kernels/internal/b/b.go":                "package b",
		"kernels/lockstep-kernel/own.go":         "package main // own",
		"kernels/lockstep-kernel/reg_fmt/reg.go": "package reg_fmt",
		"kernels/.build/gomacro/go.mod":          "module gomacro",
	} {
		got, err := os.ReadFile(filepath.Join(tree, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q, error %v, want %q", name, got, err, want)
		}
	}
	shown["/elsewhere/x.go"] = filepath.Join(root, "go.mod")
	overlay()
	if err := writeKernelTree(root, tree); err == nil {
		t.Error("an overlay that shows a file outside the module gave no error")
	}
}
