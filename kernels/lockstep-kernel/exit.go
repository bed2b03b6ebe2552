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

// Cells run in a goroutine of their own, so that runtime.Goexit, which nothing
// can stop, ends that goroutine and not the one that answers Jupyter. What ends
// a Go program ends the cell in the same way: it cannot be recovered from, not
// even by compiled code, and deferred calls run.

// startCells starts the goroutine in which cells run.
func (k *kernelState) startCells(ir *interp.Interp) {
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

// inCells runs f in the goroutine of the cells. If f calls runtime.Goexit, the
// next call has a new goroutine.
func (k *kernelState) inCells(ir *interp.Interp, f func()) {
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
		k.startCells(ir)
	}
}

// errGoexit is what a cell fails with that calls runtime.Goexit.
var errGoexit = errors.New("runtime.Goexit")

// exit ends the cell, in whatever goroutine of the kernel it is called.
func (k *kernelState) exit(err error) {
	if k.inGoroutine() {
		err = fmt.Errorf("%w (%s)", err, inGoroutine)
		if !k.session.Fail(k.session.Cell(), err) {
			fmt.Fprintln(k.stderr.File(), err)
		}
	} else {
		k.exitError = err
	}
	runtime.Goexit()
}

// exited returns what the cell fails with whose goroutine was ended.
func (k *kernelState) exited() *ending {
	err := k.exitError
	k.exitError = nil
	if err == nil {
		err = errGoexit
	}
	return &ending{err: err}
}

// bindExits replaces for the cells the functions that end a program.
func (k *kernelState) bindExits() {
	exit := func(code int) { k.exit(fmt.Errorf("os.Exit(%d)", code)) }
	bind := func(pkg, name string, f any) { imports.Packages[pkg].Binds[name] = reflect.ValueOf(f) }
	bind("os", "Exit", exit)
	bind("syscall", "Exit", exit)
	bind("log", "Fatal", func(v ...any) { k.fatal(log.Default(), fmt.Sprint(v...)) })
	bind("log", "Fatalf", func(format string, v ...any) { k.fatal(log.Default(), fmt.Sprintf(format, v...)) })
	bind("log", "Fatalln", func(v ...any) { k.fatal(log.Default(), fmt.Sprintln(v...)) })
}

// fatal logs a message and ends the cell with it.
func (k *kernelState) fatal(l *log.Logger, message string) {
	_ = l.Output(3, message) // the cell ends with the message in any case
	k.exit(fmt.Errorf("log.Fatal: %s", strings.TrimSuffix(message, "\n")))
}

// exiting returns f, the compiled function of a call, unless it is a method of a
// log.Logger that ends the program: then it returns one that ends the cell.
func (k *kernelState) exiting(c *interp.Comp, f *interp.Expr, node ast.Expr) *interp.Expr {
	sel, ok := ast.Unparen(node).(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Fatal", "Fatalf", "Fatalln"}, sel.Sel.Name) || imported(c, sel) != nil {
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
			f = func(v ...any) { k.fatal(l, fmt.Sprint(v...)) }
		case "Fatalf":
			f = func(format string, v ...any) { k.fatal(l, fmt.Sprintf(format, v...)) }
		default:
			f = func(v ...any) { k.fatal(l, fmt.Sprintln(v...)) }
		}
		return xreflect.ValueOf(f)
	}}
}

// render gives the values of a cell their forms by the methods of interpreted
// types. It replaces autoRenderResults of gophernotes.
func (k *kernelState) render(kernel *Kernel, vals []interface{}, types []xreflect.Type) (data Data) {
	k.inCells(kernel.ir, func() {
		over := false
		defer func() {
			r := recover()
			if r == nil && !over {
				r = k.exited()
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
