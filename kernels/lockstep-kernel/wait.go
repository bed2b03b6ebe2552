//go:build notebook

package main

import (
	"go/ast"
	"reflect"
	"sync"

	"github.com/cosmos72/gomacro/base"
	interp "github.com/cosmos72/gomacro/fast"
	"github.com/cosmos72/gomacro/gls"
	"github.com/cosmos72/gomacro/xreflect"

	"lockstep/kernels/internal/cell"
)

// waitFuncNames returns the functions that the kernel inserts where a cell may wait, so that an interrupt
// ends the wait, except in goroutines that a cell started.
func waitFuncNames() cell.WaitFuncNames {
	return cell.WaitFuncNames{
		From: "\u00b7from", Send: "\u00b7send", Done: "\u00b7done", Check: checkFuncName, Range: "\u00b7range", Wait: "\u00b7wait",
	}
}

func (k *kernelState) declareWaits(ir *interp.Interp) {
	w := waitFuncNames()
	ir.DeclFunc(w.Done, func() <-chan struct{} {
		if k.inGoroutine() {
			return nil
		}
		return k.session.Context().Done()
	})
	ir.DeclBuiltin(w.From, interp.Builtin{Compile: k.compileReceive, ArgMin: 1, ArgMax: 1})
	ir.DeclBuiltin(w.Send, interp.Builtin{Compile: k.compileSend, ArgMin: 2, ArgMax: 2})
	ir.DeclBuiltin(w.Wait, interp.Builtin{Compile: k.compileWait, ArgMin: 2, ArgMax: 2})
	ir.DeclBuiltin(w.Range, interp.Builtin{Compile: compileRange, ArgMin: 2, ArgMax: 2})
}

// inGoroutine reports whether the caller is a goroutine that a cell started.
func (k *kernelState) inGoroutine() bool { return gls.GoID() != k.goroutine.Load() }

func (k *kernelState) compileReceive(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
	ch := c.Expr1(node.Args[0], nil)
	t := ch.Type
	if t == nil || t.Kind() != reflect.Chan {
		c.Errorf("receive from %v <%v>: expected a channel", node.Args[0], t)
	}
	return newCall(c, []xreflect.Type{t}, []xreflect.Type{t}, []*interp.Expr{ch}, func(in []reflect.Value) []reflect.Value {
		return []reflect.Value{k.receive(in[0])}
	})
}

// receive returns a new channel of ch's type with a value from ch, or closed if ch is closed. It panics at
// an interrupt.
func (k *kernelState) receive(ch reflect.Value) reflect.Value {
	t := ch.Type()
	if k.inGoroutine() || t.ChanDir()&reflect.RecvDir == 0 {
		return ch
	}
	v, open := ch.TryRecv()
	if !v.IsValid() { // nothing yet
		var chosen int
		chosen, v, open = reflect.Select([]reflect.SelectCase{
			{Dir: reflect.SelectRecv, Chan: ch}, {Dir: reflect.SelectRecv, Chan: k.interruptChannel()},
		})
		if chosen == 1 {
			panic(base.SigInterrupt)
		}
	}
	box := reflect.MakeChan(reflect.ChanOf(reflect.BothDir, t.Elem()), 1)
	if open {
		box.Send(v)
	} else {
		box.Close()
	}
	return box.Convert(t)
}

func (k *kernelState) interruptChannel() reflect.Value {
	return reflect.ValueOf(k.session.Context().Done())
}

// compileSend compiles send(ch, v), for ch <- v.
func (k *kernelState) compileSend(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
	ch := c.Expr1(node.Args[0], nil)
	t := ch.Type
	if t == nil || t.Kind() != reflect.Chan {
		c.Errorf("cannot send to non-channel type %v: %v <- %v", t, node.Args[0], node.Args[1])
	}
	if t.ChanDir()&reflect.SendDir == 0 {
		c.Errorf("cannot send to receive-only channel type %v: %v <- %v", t, node.Args[0], node.Args[1])
	}
	v, elem := c.Expr1(node.Args[1], nil), t.Elem()
	switch {
	case v.Const():
		v.ConstTo(elem)
	case v.Type == nil || !v.Type.AssignableTo(elem):
		c.Errorf("cannot use %v <%v> as type %v in send", node.Args[1], v.Type, elem)
	default:
		v.To(c, elem)
	}
	return newCall(c, []xreflect.Type{t, elem}, nil, []*interp.Expr{ch, v}, func(in []reflect.Value) []reflect.Value {
		k.send(in[0], in[1])
		return nil
	})
}

// send sends v to ch. It panics at an interrupt.
func (k *kernelState) send(ch, v reflect.Value) {
	if k.inGoroutine() {
		ch.Send(v)
		return
	}
	chosen, _, _ := reflect.Select([]reflect.SelectCase{
		{Dir: reflect.SelectSend, Chan: ch, Send: v}, {Dir: reflect.SelectRecv, Chan: k.interruptChannel()},
	})
	if chosen == 1 {
		panic(base.SigInterrupt)
	}
}

// compileWait compiles wait(x, x.Wait). If x is a sync.WaitGroup, an interrupt ends the compiled call, or
// else it is x.Wait().
func (k *kernelState) compileWait(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
	wait := c.Expr1(node.Args[1], nil)
	if wait.Type == nil || wait.Type.Kind() != reflect.Func {
		c.Errorf("call of non-function: %v <%v>", node.Args[1], wait.Type)
	}
	if wait.Type.NumIn() > 0 && !wait.Type.IsVariadic() {
		c.Errorf("not enough arguments in call to %v", node.Args[1])
	}
	if !isWaitGroup(c, node.Args[0]) {
		return &interp.Call{Fun: wait, OutTypes: collectTypes(wait.Type.NumOut(), wait.Type.Out)}
	}
	return newCall(c, []xreflect.Type{wait.Type}, nil, []*interp.Expr{wait}, func(in []reflect.Value) []reflect.Value {
		f, _ := in[0].Interface().(func())
		k.wait(f)
		return nil
	})
}

// isWaitGroup reports whether x is a sync.WaitGroup or a pointer to one. x may have no value, as the name of
// a package with a function Wait.
func isWaitGroup(c *interp.Comp, x ast.Expr) (is bool) {
	defer func() { _ = recover() }() // x has no value
	t := c.Expr1(x, nil).Type
	if t == nil {
		return false
	}
	r := t.ReflectType()
	return r == reflect.TypeFor[sync.WaitGroup]() || r == reflect.TypeFor[*sync.WaitGroup]()
}

// wait waits for f. It panics at an interrupt; f then continues in its goroutine.
func (k *kernelState) wait(f func()) {
	if k.inGoroutine() {
		f()
		return
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	select {
	case <-over:
	case <-k.session.Context().Done():
		panic(base.SigInterrupt)
	}
}

// compileRange compiles a range loop. Over a channel, it becomes a loop that receives, since the
// interpreter's own loop cannot be interrupted while it waits.
func compileRange(c *interp.Comp, _ interp.Symbol, node *ast.CallExpr) *interp.Call {
	loop := cell.ParseRangeCall(node)
	if t := c.Expr1(node.Args[0], nil).Type; t != nil && t.Kind() == reflect.Chan {
		if r := rangeStatement(loop); r.Value != nil {
			c.Errorf("range over %v <%v> permits only one iteration variable", node.Args[0], t)
		}
		loop = waitFuncNames().RewriteRange(loop)
	}
	c.Stmt(loop)
	return newCall(c, nil, nil, nil, func([]reflect.Value) []reflect.Value { return nil })
}

// rangeStatement returns the statement of a loop, which may have a label.
func rangeStatement(loop ast.Stmt) *ast.RangeStmt {
	if l, ok := loop.(*ast.LabeledStmt); ok {
		loop = l.Stmt
	}
	r, _ := loop.(*ast.RangeStmt)
	return r
}

// newCall returns a call f(args). in and out are the types of f's parameters and results.
func newCall(c *interp.Comp, in, out []xreflect.Type, args []*interp.Expr, f func([]reflect.Value) []reflect.Value) *interp.Call {
	t := c.Universe.FuncOf(in, out, false)
	fun := xreflect.ValueOf(reflect.MakeFunc(t.ReflectType(), f).Interface())
	return &interp.Call{
		Fun:  &interp.Expr{Lit: interp.Lit{Type: t}, Fun: func(*interp.Env) xreflect.Value { return fun }},
		Args: args, OutTypes: out,
	}
}
