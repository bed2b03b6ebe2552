package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

// checkTypes checks the syntax and types of all packages, their tests and everything that they
// import, with the files for the platform that env selects ("GOOS=darwin"). This finds what
// does not build there in a fraction of the time of a build, which would also generate the
// code of all dependencies; only assembly and calls from it are not checked.
func checkTypes(ctx context.Context, r *runner, env ...string) error {
	loaded, err := packages.Load(&packages.Config{
		Context: ctx,
		Mode:    packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes,
		Env:     append(append(os.Environ(), "CGO_ENABLED=0"), env...),
		Tests:   true,
	}, "./...")
	if err != nil {
		return fmt.Errorf("list the packages for %s: %w", strings.Join(env, " "), err)
	}
	checked, failed := 0, 0
	packages.Visit(loaded, nil, func(p *packages.Package) {
		checked++
		for _, e := range p.Errors {
			failed++
			r.printLine(e.Error())
		}
	})
	r.printLine(fmt.Sprintf("%s: %d packages", strings.Join(env, " "), checked))
	if failed > 0 {
		return errors.New("see the errors above")
	}
	return nil
}
