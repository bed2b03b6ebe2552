//go:build notebook

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"log"
	"reflect"
	"runtime"
	"slices"
	"strings"

	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/gls"
	"github.com/cosmos72/gomacro/imports"
	"github.com/cosmos72/gomacro/xreflect"
)

// Cells run in a separate goroutine. runtime.Goexit, which cannot be stopped, therefore does not end the one
// that answers Jupyter. Functions that would end a Go program end the cell by runtime.Goexit too: no code,
// not even compiled code, can recover from it, and deferred calls run.

func (k *kernelState) startCellGoroutine(ir *interp.Interp) {
	started := make(chan struct{})
	go func() {
		ir.SetGoroutine(gls.GoID())
		k.goroutine.Store(gls.GoID())
		close(started)
		for job := range k.jobs {
			job()
		}
	}()
	<-started
}

// runInCellGoroutine runs f in the goroutine of the cells. If runtime.Goexit ends that, a new one is started.
func (k *kernelState) runInCellGoroutine(ir *interp.Interp, f func()) {
	done := make(chan bool)
	k.jobs <- func() {
		returned := false
		defer func() {
			if !returned {
				ir.SetGoroutine(0)
				k.goroutine.Store(0)
			}
			done <- returned
		}()
		f()
		returned = true
	}
	if !<-done {
		k.startCellGoroutine(ir)
	}
}

var errGoexit = errors.New("runtime.Goexit")

// exit ends the cell with err, and the calling goroutine: the cell's, or one that it started.
func (k *kernelState) exit(err error) {
	if k.inGoroutine() {
		k.failGoroutine(k.session.CellNumber(), nameError, err.Error())
	} else {
		k.exitError = err
	}
	runtime.Goexit()
}

// takeExitError returns and clears the error of exit, or errGoexit if the cell has called runtime.Goexit.
func (k *kernelState) takeExitError() *unhandledError {
	err := k.exitError
	k.exitError = nil
	if err == nil {
		err = errGoexit
	}
	return &unhandledError{err: err}
}

func (k *kernelState) replaceExits() {
	exit := func(code int) { k.exit(fmt.Errorf("os.Exit(%d)", code)) }
	bind := func(pkg, name string, f any) { imports.Packages[pkg].Binds[name] = reflect.ValueOf(f) }
	bind("os", "Exit", exit)
	bind("syscall", "Exit", exit)
	bind("log", "Fatal", func(v ...any) { k.logFatal(log.Default(), fmt.Sprint(v...)) })
	bind("log", "Fatalf", func(format string, v ...any) { k.logFatal(log.Default(), fmt.Sprintf(format, v...)) })
	bind("log", "Fatalln", func(v ...any) { k.logFatal(log.Default(), fmt.Sprintln(v...)) })
}

// logFatal logs a message and ends the cell with it.
func (k *kernelState) logFatal(l *log.Logger, message string) {
	_ = l.Output(3, message) // the cell ends with the message in any case
	k.exit(fmt.Errorf("log.Fatal: %s", strings.TrimSuffix(message, "\n")))
}

// replaceFatal returns the function to call instead of f, the compiled function of a call: one that ends the
// cell if f is a method of log.Logger that ends the program, otherwise f.
func (k *kernelState) replaceFatal(c *interp.Comp, f *interp.Expr, node ast.Expr) *interp.Expr {
	sel, ok := ast.Unparen(node).(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Fatal", "Fatalf", "Fatalln"}, sel.Sel.Name) || selectedPackage(c, sel) != nil {
		return f
	}
	logger := c.Expr1(sel.X, nil)
	if logger.Type == nil || logger.Type.ReflectType() != reflect.TypeFor[*log.Logger]() {
		return f
	}
	get := logger.AsX1()
	return &interp.Expr{Lit: interp.Lit{Type: f.Type}, Fun: func(env *interp.Env) xreflect.Value {
		l, _ := get(env).Interface().(*log.Logger)
		var f any
		switch sel.Sel.Name {
		case "Fatal":
			f = func(v ...any) { k.logFatal(l, fmt.Sprint(v...)) }
		case "Fatalf":
			f = func(format string, v ...any) { k.logFatal(l, fmt.Sprintf(format, v...)) }
		default:
			f = func(v ...any) { k.logFatal(l, fmt.Sprintln(v...)) }
		}
		return xreflect.ValueOf(f)
	}}
}

// render returns the MIME bundle of a cell's values. It runs gophernotes' autoRenderResults in the goroutine
// of the cells, because that calls methods of interpreted types.
func (k *kernelState) render(kernel *Kernel, vals []interface{}, types []xreflect.Type) (data Data) {
	k.runInCellGoroutine(kernel.ir, func() {
		over := false
		defer func() {
			r := recover()
			if r == nil && !over {
				r = k.takeExitError()
			}
			if r != nil {
				fmt.Fprintf(k.stderr.File(), "show value: %v\n", r)
				k.stderr.Flush()
			}
		}()
		data = kernel.autoRenderResults(vals, types)
		over = true
	})
	return data
}
