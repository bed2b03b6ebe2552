//go:build notebook

// Command lockstep-kernel is the Jupyter kernel "Go (Lockstep)": gophernotes
// with this project's packages, gota, gonum, gonum/plot, gorgonia and the
// standard library compiled in.
//
// These files are only half of it. kernels/build shows the compiler the files
// of gophernotes (names beginning with gophernotes_) and the registrations of
// the packages beside them, and sets the build tag notebook. Without the tag
// the command only says how to build it. The functions below that nobody here
// calls are called from gophernotes' kernel.go, by the substitutions in
// kernels/build/overlay.go.
package main

import (
	"flag"
	"fmt"
	"go/build"
	"os"
	"os/signal"
	"reflect"
	"syscall"

	interp "github.com/cosmos72/gomacro/fast"

	cu "lockstep/kernels/internal/withoutcu"
	"lockstep/pkg/notebook"
)

// jsonProxy lets an interpreted type have a JSON method. The one in gophernotes
// v0.7.5 has the wrong result type, which today's interpreter refuses.
type jsonProxy struct {
	Object interface{}
	JSON_  func(interface{}) map[string]interface{}
}

func (p *jsonProxy) JSON() map[string]interface{} { return p.JSON_(p.Object) }

// What must be so before the interpreter is made.
func init() {
	for _, arg := range os.Args[1:] {
		if arg == "--version" || arg == "-version" {
			fmt.Printf("lockstep-kernel %s\n", notebook.BuildID())
			os.Exit(0)
		}
	}
	// With no GOROOT, go/importer finds no export data, and the interpreter
	// takes types from package reflect. Export data of today's Go holds aliases
	// and type parameters, on which the interpreter panics.
	build.Default.GOROOT = ""
	cu.Register()
	display.Proxies["JSONer"] = reflect.TypeOf(jsonProxy{})
}

// newInterp makes the interpreter and everything around it that lives as long
// as the kernel. It stands in place of interp.New in gophernotes' runKernel.
func newInterp() *interp.Interp {
	k, err := newLockstep()
	if err != nil {
		fmt.Fprintf(os.Stderr, "lockstep-kernel: %v\n", err)
		os.Exit(1)
	}
	lockstep = k
	if err := k.watchMemory(); err != nil {
		fmt.Fprintf(os.Stderr, "lockstep-kernel: %v\n", err)
		os.Exit(1)
	}
	k.openCrash(flag.Arg(0))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM { // a restart of a kernel that is busy
				k.shutDown()
				os.Exit(1)
			}
			k.session.Interrupt()
		}
	}()
	ir := interp.New()
	k.startCells(ir)
	k.declareHelpers(ir)
	if err := k.inspect(ir); err != nil {
		fmt.Fprintf(os.Stderr, "lockstep-kernel: %v\n", err)
		os.Exit(1)
	}
	return ir
}
