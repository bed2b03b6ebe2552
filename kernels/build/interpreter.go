package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	interpreterModule  = "github.com/cosmos72/gomacro"
	interpreterVersion = "v0.0.0-20240506194242-2ff796e3da10"
)

// interpreterSubstitutions returns the changes that the kernel makes to the source of
// gomacro. Most of them make the implicit conversion of constants as strict as in Go:
// without them, gomacro evaluates "a" + 1 as "a" + "a", and accepts var s string = 65 as
// "A".
func interpreterSubstitutions() []substitution {
	return []substitution{
		{
			"base/untyped/lit.go",
			`			// untyped string -> string
			ret = strings.UnescapeString(val.ExactString())
		case constant.Int:`,
			`			// untyped string -> string
			ret = constant.StringVal(val)
		case constant.Kind(-1):`,
		},
		{
			"base/untyped/lit.go",
			`		if val.Kind() == constant.String {
			s := strings.UnescapeString(val.ExactString())`,
			`		if false {
			s := strings.UnescapeString(val.ExactString())`,
		},
		{
			"base/untyped/lit.go", "		ret = untyp.toMathBig(t)\n", "		// Go has no constants of type *big.Int.\n",
		},
		{
			"base/untyped/lit.go", `		output.Errorf("cannot convert untyped constant %v to <%v>", untyp, t)
		return nil
	}
	v := r.ValueOf(ret)`, `		output.Errorf("cannot use %s as %v value", untyp.Source(), t)
		return nil
	}
	v := r.ValueOf(ret)`,
		},
		{
			"base/untyped/lit.go", `		output.Errorf("cannot convert untyped constant %v to <%v>", untyp, t)
		return nil
	}
	// allow inexact`, `		output.Errorf("cannot use %s as %v value", untyp.Source(), t)
		return nil
	}
	// allow inexact`,
		},
		{
			"base/untyped/lit.go", "func (untyp *Lit) EqualInt64(i int64) bool {", `// Source describes the constant for an error message.
func (untyp *Lit) Source() string {
	return untyp.Val.String() + " (untyped " + untyp.Kind.String() + " constant)"
}

func (untyp *Lit) EqualInt64(i int64) bool {`,
		},
		{
			"base/untyped/lit.go", `		output.Errorf("untyped constant %v overflows <%v>", untyp, t)`,
			`		output.Errorf("cannot use %s as %v value (overflows)", untyp.Source(), t)`,
		},
		{"base/untyped/lit.go", `				output.Errorf("constant %v overflows <%v>", src, to)`, `				output.Errorf("constant %v overflows %v", src, to)`},
		{
			"base/untyped/lit.go", "	}\n	return vto.Interface()\n}", `	}
	if kto == r.Float32 {
		if f := vto.Float(); f-f != 0 {
			output.Errorf("constant %v overflows %v", src, to)
		}
	}
	return vto.Interface()
}`,
		},
		// An explicit conversion, such as string(65) or []byte("text"), first converts
		// the constant to its default type.
		{
			"fast/convert.go", "	if e.Untyped() {\n		e.ConstTo(t)\n	}", `	if e.Untyped() {
		if k := t.Kind(); k == r.String || k == r.Slice {
			e.ConstTo(e.DefaultType())
		} else {
			e.ConstTo(t)
		}
	}`,
		},
		{
			"fast/binary.go", "	op := node.Op\n	switch op {\n	case token.LAND, token.LOR:\n		xb", `	op := node.Op
	checkUntyped(c, node, x, y)
	switch op {
	case token.LAND, token.LOR:
		xb`,
		},
		{
			"fast/binary.go", "func (c *Comp) BinaryExprUntyped(", `// checkUntyped reports an error for an operation on two untyped constants that Go rejects.
func checkUntyped(c *Comp, node *ast.BinaryExpr, x, y UntypedLit) {
	class := func(k untyped.Kind) untyped.Kind {
		if k == untyped.String || k == untyped.Bool {
			return k
		}
		return untyped.Int
	}
	op := tokenWithoutAssign(node.Op)
	xc, yc := class(x.Kind), class(y.Kind)
	ok := true
	switch op {
	case token.SHL, token.SHR:
		return
	case token.LAND, token.LOR:
		ok = xc == untyped.Bool
	case token.EQL, token.NEQ:
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		ok = xc != untyped.Bool
	case token.ADD:
		ok = xc != untyped.Bool
	default:
		ok = xc == untyped.Int
	}
	c.Pos = node.Pos()
	if xc != yc {
		c.Errorf("invalid operation: %v (mismatched types untyped %v and untyped %v)", node, x.Kind, y.Kind)
	}
	if !ok {
		c.Errorf("invalid operation: operator %v not defined on %v (untyped %v constant)", op, node.X, x.Kind)
	}
	if (op == token.QUO || op == token.REM) && y.Val.Kind() != constant.Complex && constant.Sign(y.Val) == 0 {
		c.Errorf("invalid operation: division by zero: %v", node)
	}
}

// convertConstOperand converts the constant x of an operation to the type of the other
// operand.
func (c *Comp) convertConstOperand(node ast.Expr, x *Expr, t xr.Type) {
	if u, ok := x.Value.(UntypedLit); ok {
		var fits bool
		switch t.Kind() {
		case xr.Bool:
			fits = u.Kind == untyped.Bool
		case xr.String:
			fits = u.Kind == untyped.String
		default:
			fits = !reflect.IsCategory(t.Kind(), xr.Int, xr.Uint, xr.Float64, xr.Complex128) || u.Kind != untyped.Bool && u.Kind != untyped.String
		}
		if !fits {
			c.Pos = node.Pos()
			c.Errorf("invalid operation: %v (mismatched types %v and untyped %v)", node, t, u.Kind)
		}
	}
	x.ConstTo(t)
}

func (c *Comp) BinaryExprUntyped(`,
		},
		{
			"fast/binary.go", "			ye.ConstTo(xe.Type)\n		}\n	} else if xconst {\n		xe.ConstTo(ye.Type)",
			"			c.convertConstOperand(node, ye, xe.Type)\n		}\n	} else if xconst {\n		c.convertConstOperand(node, xe, ye.Type)",
		},
		{
			"fast/binary.go", "	} else if xu {\n		xe.ConstTo(ye.Type)\n	} else if yu {\n		ye.ConstTo(xe.Type)",
			"	} else if xu {\n		c.convertConstOperand(node, xe, ye.Type)\n	} else if yu {\n		c.convertConstOperand(node, ye, xe.Type)",
		},
		// An expression such as f(x) may be a type or a value. If it compiles as neither,
		// the error of compiling it as a value is reported.
		{
			"fast/expr.go", "			recover()\n			t = c.Type(expr)\n", `			err, pos := recover(), c.Pos
			defer func() {
				if recover() != nil {
					c.Pos = pos
					panic(err)
				}
			}()
			t = c.Type(expr)
`,
		},
		// runtime.Goexit also runs deferred calls, but must not be treated as a panic
		// with nil.
		{
			"fast/code.go", "	if run.PanicFun != nil {\n		panic(run.Panic)\n	}", `	if run.PanicFun != nil && run.Panic != nil {
		panic(run.Panic)
	}
	run.PanicFun = nil`,
		},
		// A function with deferred calls forgets which statement has panicked before the
		// panic leaves it, so the innermost position is recorded.
		{"fast/global.go", "	Panic        interface{} // current panic. needed for recover()", `	Panic        interface{} // current panic. needed for recover()
	PanicPos     token.Pos   // position of the statement with the current panic, or NoPos if no deferred call has run since`},
		{"fast/builtin.go", "	run.PanicFun = nil\n", "	run.PanicFun, run.PanicPos = nil, 0\n"},
		{"fast/code.go", "			run.Panic = recover()\n", "			run.notePanic()\n			run.Panic = recover()\n"},
		{"fast/code.go", "		panicking2 = true // detect panics inside defer\n		fun()\n		panicking2 = false\n", `		at := run.PanicPos
		run.PanicPos = token.NoPos
		defer func() {
			if panicking2 {
				run.notePanic()
			}
		}()
		panicking2 = true // detect panics inside defer
		fun()
		panicking2 = false
		if run.PanicFun != nil {
			run.PanicPos = at
		}
`},
		{"fast/code.go", "func pushDefer(", `// Pos returns the position of the statement that runs in env. env may be nil.
func (env *Env) Pos() token.Pos {
	if env == nil || env.IP < 0 || env.IP >= len(env.DebugPos) {
		return token.NoPos
	}
	return env.DebugPos[env.IP]
}

// notePanic records the statement that has panicked, unless a deferred call has recorded it.
func (run *Run) notePanic() {
	if !run.PanicPos.IsValid() {
		run.PanicPos = run.CurrEnv.Pos()
	}
}

func pushDefer(`},
		// var _ T declares nothing.
		{"fast/declaration.go", "		// no difference between declaration and assignment for these classes\n", "		if index := desc.Index(); index == NoIndex && init == nil {\n			return bind\n		}\n"},
		{"fast/declaration.go", "		if index == NoIndex && init != nil {\n", "		if index == NoIndex && init == nil {\n			return bind\n		} else if index == NoIndex {\n"},
		// Cells do not run in the goroutine that creates the interpreter.
		{
			"fast/compile.go", "func (run *Run) new(goid uintptr) *Run {", `// SetGoroutine makes the goroutine with the given gls.GoID run the code of ir.
func (ir *Interp) SetGoroutine(id uintptr) {
	run := ir.env.Run
	run.glsDel()
	run.goid = id
	run.glsStore()
}

func (run *Run) new(goid uintptr) *Run {`,
		},
	}
}

// addInterpreter maps the files of gomacro, with the substitutions applied, into a folder
// that is otherwise empty. It returns the flag that makes go build use that folder.
func (b *build) addInterpreter(ctx context.Context, ov *overlay) (flag string, err error) {
	version, dir, err := findModule(ctx, b.goTool, interpreterModule)
	if err != nil {
		return "", fmt.Errorf("find interpreter: %w", err)
	}
	if version != interpreterVersion {
		return "", fmt.Errorf("find interpreter: go.mod selects %s %s, but kernels/build/interpreter.go supports only %s",
			interpreterModule, version, interpreterVersion)
	}
	seen := filepath.Join(b.dir, "kernels", ".build", "gomacro")
	if err := ov.addModule(interpreterModule, dir, seen, interpreterSubstitutions()); err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(b.dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("replace interpreter: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(b.dir, "go.sum"))
	if err != nil {
		return "", fmt.Errorf("replace interpreter: %w", err)
	}
	mod = fmt.Appendf(mod, "\nreplace %s => ./kernels/.build/gomacro\n", interpreterModule)
	file := filepath.Join(ov.genDir, "go.mod")
	if err := ov.writeUnmapped(file, mod); err != nil {
		return "", err
	}
	return "-modfile=" + file, ov.writeUnmapped(filepath.Join(ov.genDir, "go.sum"), sum)
}

// addModule maps the files of a module from the folder dir into the folder target, with
// the substitutions applied. It creates the folder of each package with assembly, because
// the go command starts the assembler in that folder.
func (o *overlay) addModule(module, dir, target string, subs []substitution) error {
	made := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if strings.HasSuffix(name, ".s") {
			if err := os.MkdirAll(filepath.Join(target, filepath.Dir(name)), 0o755); err != nil {
				return err
			}
		}
		if !hasSubstitution(name, subs) {
			o.replace[filepath.Join(target, name)] = path
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text, err := applySubstitutions(module, name, string(src), subs)
		if err != nil {
			return err
		}
		made[name] = true
		return o.addGenerated(filepath.Join(target, name), filepath.Join("gomacro", name), []byte(text))
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", module, err)
	}
	for _, s := range subs {
		if !made[s.file] {
			return fmt.Errorf("substitute in %s: found no file %s", module, s.file)
		}
	}
	return nil
}

// hasSubstitution reports whether one of the substitutions changes the file.
func hasSubstitution(file string, subs []substitution) bool {
	for _, s := range subs {
		if s.file == file {
			return true
		}
	}
	return false
}
