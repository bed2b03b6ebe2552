package cell

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/token"
	"strings"
	"testing"
)

// source is a node in one line.
func source(t *testing.T, n ast.Node) string {
	t.Helper()
	var b bytes.Buffer
	if err := format.Node(&b, token.NewFileSet(), n); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func TestWaiting(t *testing.T) {
	w := WaitFuncNames{From: "from", Send: "send", Done: "done", Check: "check", Range: "loop", Wait: "wait"}
	for code, want := range map[string]string{
		"<-c":                               "<-from(c)",
		"v, ok := <-c":                      "v, ok := <-from(c)",
		"f(<-c, <-<-d)":                     "f(<-from(c), <-from(<-from(d)))",
		"x := (<-c) + (<-c)":                "x := (<-from(c)) + (<-from(c))",
		"c <- <-d":                          "send(c, <-from(d))",
		"func f() { c <- 1 }":               "func f() { send(c, 1) }",
		"wg.Wait()":                         "wait(wg, wg.Wait)",
		"err := a.b.Wait()":                 "err := wait(a.b, a.b.Wait)",
		"x.Wait(1)":                         "x.Wait(1)",
		"defer wg.Wait()":                   "defer wg.Wait()",
		"go wg.Wait()":                      "go wg.Wait()",
		"go f(<-c)":                         "go f(<-from(c))",
		"select { default: }":               "select { default: }",
		"select {}":                         "select { case <-done(): check(-1) }",
		"select { case v := <-c: f(v) }":    "select { case v := <-c: f(v) case <-done(): check(-1) }",
		"select { case c <- <-d: <-c }":     "select { case c <- <-from(d): <-from(c) case <-done(): check(-1) }",
		"select { case (<-c): }":            "select { case (<-c): case <-done(): check(-1) }",
		"L: select { case <-c: break L }":   "L: select { case <-c: break L case <-done(): check(-1) }",
		"for v := range c { f(v) }":         "{ loop(c, func() { for v := range c { f(v) } }) }",
		"L: for range c { continue L }":     "{ loop(c, func() { L: for range c { continue L } }) }",
		"for _, v := range list { c <- v }": "{ loop(list, func() { for _, v := range list { send(c, v) } }) }",
	} {
		nodes := parse(t, code)
		w.RewriteWaits(nodes)
		if got := source(t, nodes[0]); got != want {
			t.Errorf("%q becomes\n%q, want\n%q", code, got, want)
		}
	}
}

func TestLoopByReceive(t *testing.T) {
	w := WaitFuncNames{From: "from", Range: "loop"}
	for code, want := range map[string]string{
		"for v := range c { f(v) }":     "{ ·channel := c for { v, ·open := <-from(·channel) if !·open { break } { f(v) } } }",
		"for x.v = range g() { }":       "{ ·channel := g() for { ·value, ·open := <-from(·channel) if !·open { break } x.v = ·value { } } }",
		"L: for range c { continue L }": "{ ·channel := c L: for { _, ·open := <-from(·channel) if !·open { break } { continue L } } }",
	} {
		nodes := parse(t, code)
		w.RewriteWaits(nodes)
		block := nodes[0].(*ast.BlockStmt)
		made := block.List[0].(*ast.ExprStmt).X.(*ast.CallExpr)
		if got := source(t, w.RewriteRange(ParseRangeCall(made))); got != want {
			t.Errorf("%q becomes\n%q, want\n%q", code, got, want)
		}
	}
}
