package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"

	"lockstep/kernels/internal/docs"
)

// docsFile contains the table of doc comments that is embedded in the kernel.
const docsFile = "docs.zip"

// encodeDocs returns the compressed doc comments of pkgs and of Go's builtin functions.
func encodeDocs(ctx context.Context, g goTool, pkgs []*packages.Package) ([]byte, error) {
	table := map[string]docs.Package{}
	for _, p := range pkgs {
		d, err := docs.Read(p.PkgPath, p.GoFiles)
		if err != nil {
			return nil, err
		}
		table[p.PkgPath] = d
	}
	out, err := g.run(ctx, "list", "-f", `{{.Dir}}{{"\n"}}{{join .GoFiles "\n"}}`, "builtin")
	if err != nil {
		return nil, fmt.Errorf("find package builtin: %w", err)
	}
	files := strings.Split(strings.TrimSpace(out), "\n")
	dir := files[0]
	for i, f := range files[1:] {
		files[i+1] = filepath.Join(dir, f)
	}
	if table["builtin"], err = docs.ReadBuiltin(files[1:]); err != nil {
		return nil, err
	}
	return docs.Encode(table)
}
