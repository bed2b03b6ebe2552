//go:build notebook

// Command lockstep-kernel is the Jupyter kernel "Go (Lockstep)": gophernotes with this project's packages,
// gota, gonum, gonum/plot, gorgonia and the standard library compiled in.
//
// kernels/build adds the files of gophernotes (gophernotes_*) and the registrations of the packages to this
// folder, and sets the build tag notebook. Without the tag the command only prints how to build the kernel.
// Functions below without a caller are called from gophernotes' kernel.go, through
// kernels/patches/gophernotes.patch.
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

// jsonProxy lets interpreted types have a method JSON. The proxy in gophernotes v0.7.5 has the wrong
// result type, which the interpreter rejects.
type jsonProxy struct {
	Object interface{}
	JSON_  func(interface{}) map[string]interface{}
}

func (p *jsonProxy) JSON() map[string]interface{} { return p.JSON_(p.Object) }

// init handles the flag -version, or prepares for the creation of the interpreter.
func init() {
	for _, arg := range os.Args[1:] {
		if arg == "--version" || arg == "-version" {
			fmt.Printf("lockstep-kernel %s\n", notebook.BuildID())
			os.Exit(0)
		}
	}
	// Without GOROOT, go/importer finds no export data, and the interpreter takes types from package
	// reflect. It panics at the aliases and type parameters in current export data.
	build.Default.GOROOT = ""
	cu.Register()
	display.Proxies["JSONer"] = reflect.TypeOf(jsonProxy{})
}

// newInterp creates the interpreter and the kernel's state. It replaces interp.New in gophernotes' runKernel.
func newInterp() *interp.Interp {
	k, err := newKernelState()
	if err != nil {
		fmt.Fprintf(os.Stderr, "lockstep-kernel: %v\n", err)
		os.Exit(1)
	}
	globalKernel = k
	if err := k.watchMemory(); err != nil {
		fmt.Fprintf(os.Stderr, "lockstep-kernel: %v\n", err)
		os.Exit(1)
	}
	k.openCrashFile(flag.Arg(0))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM { // Jupyter restarts a busy kernel
				k.shutDown()
				os.Exit(1)
			}
			k.session.Interrupt()
		}
	}()
	ir := interp.New()
	k.startCellGoroutine(ir)
	k.declareHelpers(ir)
	if err := k.initInspector(ir); err != nil {
		fmt.Fprintf(os.Stderr, "lockstep-kernel: %v\n", err)
		os.Exit(1)
	}
	return ir
}
