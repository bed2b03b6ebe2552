//go:build notebook

package main

import (
	"context"
	"errors"
	"fmt"
	"go/token"
	"io"
	"log"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cosmos72/gomacro/base"
	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/imports"
	"github.com/cosmos72/gomacro/xreflect"

	"lockstep/kernels/internal/cell"
	"lockstep/kernels/internal/crash"
	"lockstep/kernels/internal/docs"
	"lockstep/kernels/internal/introspect"
	"lockstep/kernels/internal/session"
	"lockstep/kernels/internal/show"
	"lockstep/kernels/internal/stream"
	"lockstep/pkg/notebook"
)

// globalKernel is this process's only kernel. It is global because gophernotes cannot pass it to its functions.
var globalKernel *kernelState

// kernelState is what Lockstep adds to gophernotes' state. It lasts from cell to cell.
type kernelState struct {
	session        *session.Session
	stdout, stderr *stream.Pipe
	receipt        atomic.Pointer[msgReceipt] // message with the running cell, or with the last one
	log            io.Writer                  // log of the Jupyter server
	inspector      introspect.Inspector
	stdin          *promptReader
	at             int            // index of the running statement of the cell; see insertChecks
	inner          token.Pos      // position of the interpreted statement that panicked
	called         bool           // the statement at inner is in a function or block
	goroutine      atomic.Uintptr // id of the goroutine in which cells run
	jobs           chan func()    // functions to run in that goroutine
	crash          *crash.File
	previousEnd    string // how the previous kernel ended; empty once it was shown
	exitError      error  // why the cell ended its goroutine; see exit
	queue          requestQueue
	errors         errorState
	cells          cellSources
}

// newKernelState redirects the output to pipes, and sets the hooks that compiled code calls.
func newKernelState() (*kernelState, error) {
	k := &kernelState{session: session.New(), log: os.Stderr, jobs: make(chan func())}
	k.errors.safe = map[string]bool{}
	k.errors.reset()
	log.SetOutput(k.log)
	var err error
	if k.stdout, err = stream.Open(os.Stdout); err != nil {
		return nil, err
	}
	if k.stderr, err = stream.Open(os.Stderr); err != nil {
		return nil, err
	}
	if err := k.replaceStdin(); err != nil {
		return nil, err
	}
	k.session.Slow = func() {
		fmt.Fprintln(k.stdout.File(), "interrupt: a compiled function is still running and cannot be interrupted; "+
			"the cell ends when it returns. To end it now, restart the kernel.")
	}
	k.session.Again = func() {
		fmt.Fprintln(k.stdout.File(), "interrupt: the cell was interrupted before and has not ended: a compiled function is running "+
			"that cannot be interrupted. Wait for it, or restart the kernel, which loses the variables. A function that takes "+
			"a context ends at once if its argument is notebook.Context().")
	}
	notebook.SetHook(notebook.Hook{Context: k.session.Context, Display: k.display, Go: k.startGuardedGoroutine})

	// The interpreter checks for an interrupt only between its own statements, so a sleeping cell must be
	// woken, but not its goroutines.
	imports.Packages["time"].Binds["Sleep"] = reflect.ValueOf(func(d time.Duration) {
		if k.inGoroutine() {
			time.Sleep(d)
		} else {
			k.session.Sleep(d)
		}
	})
	k.replaceAfterFunc()
	k.replaceExits()
	return k, nil
}

func (k *kernelState) initInspector(ir *interp.Interp) error {
	table, err := docs.Open(docsTable)
	if err != nil {
		return err
	}
	k.inspector = introspect.Inspector{Interp: ir, Docs: table, Known: registeredPackages, Values: validFieldValues()}
	return nil
}

// evalCell replaces doEval in gophernotes' handleExecuteRequest.
func evalCell(ir *interp.Interp, outerr OutErr, code string) ([]interface{}, []xreflect.Type, error) {
	return globalKernel.eval(ir, outerr, code)
}

// eval runs one cell. It returns the values and types of the last line, if that is an expression, or the
// error that ended the cell.
func (k *kernelState) eval(ir *interp.Interp, outerr OutErr, code string) ([]interface{}, []xreflect.Type, error) {
	k.redirectOutput(outerr)
	defer k.flushOutput()
	k.showPreviousEnd()

	k.cells.add(ExecCounter, code)
	parsed, err := cell.Parse(code)
	if err != nil {
		return nil, nil, k.newSyntaxError(code, err)
	}
	if err := parsed.CheckImports(isCompiledIn, registeredPackages); err != nil {
		return nil, nil, err
	}
	k.session.Begin(newStopper(ir))
	var out cellOutcome
	k.crash.Begin(ExecCounter)
	defer k.crash.End(ExecCounter)
	k.runInCellGoroutine(ir, func() { k.run(ir, code, &out) })
	if k.session.End() {
		if cause := k.session.Cause(); cause != nil {
			freeMemory(cause)
			return nil, nil, cause
		}
		return nil, nil, interruptError(out.err)
	}
	if out.err != nil {
		return nil, nil, out.err
	}
	return k.renderResults(ir, parsed, out.vals, out.types)
}

func isCompiledIn(path string) bool {
	_, ok := imports.Packages[path]
	return ok
}

func (k *kernelState) redirectOutput(outerr OutErr) {
	if w, ok := outerr.out.(*JupyterStreamWriter); ok {
		k.receipt.Store(w.receipt)
	}
	k.stdout.SetOutput(outerr.out)
	k.stderr.SetOutput(outerr.err)
	// gophernotes has just replaced these files by its own pipes. At the end of the cell
	// it restores the files that it found: from the first cell on, the kernel's.
	os.Stdout, os.Stderr = k.stdout.File(), k.stderr.File()
	log.SetOutput(k.stderr.File())
}

// flushOutput waits until all that the cell has printed was sent to the notebook. Output of its goroutines
// goes to the same cell until the next one begins.
func (k *kernelState) flushOutput() {
	k.stdout.Flush()
	k.stderr.Flush()
	log.SetOutput(k.log)
}

var errInterrupted = errors.New("interrupted")

// interruptError returns the error of a cell that was interrupted and ended with err.
func interruptError(err error) error {
	if err == nil || errors.Is(err, errInterrupted) || strings.HasSuffix(err.Error(), base.SigInterrupt.String()) || errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	return fmt.Errorf("interrupted: %w", err)
}

// renderResults returns what the notebook shows of a cell's last line: nothing of fmt.Print and the like,
// and MIME bundles of limited size for other values.
func (k *kernelState) renderResults(ir *interp.Interp, parsed cell.Cell, vals []interface{}, types []xreflect.Type) ([]interface{}, []xreflect.Type, error) {
	if len(vals) == 0 || parsed.EndsWithPrint() {
		return nil, nil, nil
	}
	if len(vals) == 1 {
		if list, ok, err := show.RenderElements(vals[0]); ok || err != nil {
			return nil, nil, errors.Join(err, k.displayAll(list))
		}
		if hasDisplayMethod(vals[0], types[0]) {
			return vals, types, nil // gophernotes calls the methods through the interpreter
		}
	}
	bundle, err := show.RenderResults(vals)
	if err != nil {
		return nil, nil, err
	}
	if text, ok := bundle[show.Text].(string); ok && len(vals) == 1 {
		bundle[show.Text] = addTypeName(text, types[0])
	}
	data := Data{Data: bundle}
	return []interface{}{data}, []xreflect.Type{ir.Comp.TypeOf(data)}, nil
}

// addTypeName inserts into text, a formatted value, the name of its struct type if the interpreter has
// created it, because package reflect does not know that name.
func addTypeName(text string, t xreflect.Type) string {
	pointer := ""
	if t != nil && t.Kind() == reflect.Pointer && !t.Named() {
		t, pointer = t.Elem(), "&"
	}
	if t == nil || !t.Named() || t.Kind() != reflect.Struct || !strings.HasPrefix(text, pointer+"{") {
		return text
	}
	return pointer + t.Name() + text[len(pointer):]
}

// hasDisplayMethod reports whether an interpreted type has one of displayMethods, which compiled code cannot
// detect.
func hasDisplayMethod(v any, t xreflect.Type) bool {
	if _, ok := v.(Data); ok {
		return true
	}
	return t != nil && slices.ContainsFunc(displayMethods, func(name string) bool {
		_, n := t.MethodByName(name, "main")
		return n > 0 && !reflect.ValueOf(v).MethodByName(name).IsValid()
	})
}

// displayMethods are called by gophernotes to show a value.
var displayMethods = []string{"Render", "SimpleRender", "HTML", "JavaScript", "JPEG", "JSON", "Latex", "Markdown", "PNG", "PDF", "SVG"}

func (k *kernelState) displayAll(list []show.Bundle) error {
	for _, bundle := range list {
		if err := k.display(Data{Data: bundle}, "", false); err != nil {
			return err
		}
	}
	return nil
}

// display implements notebook.Display in this kernel.
func (k *kernelState) display(v any, id string, update bool) error {
	receipt := k.receipt.Load()
	if receipt == nil {
		return errors.New("display value: no cell has run yet")
	}
	data, ok := v.(Data)
	if !ok {
		bundle, err := show.RenderAny(v)
		if err != nil {
			return err
		}
		data = Data{Data: bundle}
	}
	// Text that was printed earlier must appear first.
	k.stdout.Flush()
	k.stderr.Flush()
	transient := ensure(data.Transient)
	kind := "display_data"
	if id != "" {
		transient = merge(MIMEMap{"display_id": id}, data.Transient)
		if update {
			kind = "update_display_data"
		}
	}
	err := receipt.Publish(kind, map[string]interface{}{
		"data": ensure(data.Data), "metadata": ensure(data.Metadata), "transient": transient,
	})
	if err != nil {
		return fmt.Errorf("display value: %w", err)
	}
	return nil
}
