package main

import (
	"bytes"
	"fmt"
	"go/constant"
	"go/format"
	"go/types"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A registration generates the source of a package that enters another package's exported objects into the
// interpreter's table, so that a cell can import them:
//
// \timports.Packages["path"] = imports.Package{Name, Binds, Types, Proxies, Untypeds}
//
// It leaves out generic functions and types, which the interpreter's package reflect cannot represent.
type registration struct {
	pkg     *types.Package
	imports map[string]string // import path -> name in the generated file

	binds, types, proxies, untypeds, decls bytes.Buffer

	skipped []string // exported objects left out
}

// generateRegistration generates the registration of p as a package called name. skipped are exported
// objects left out.
func generateRegistration(p *types.Package, name string) (src []byte, skipped []string, err error) {
	reg := &registration{pkg: p, imports: map[string]string{}}
	scope := p.Scope()
	for _, n := range scope.Names() {
		if o := scope.Lookup(n); o.Exported() {
			reg.registerObject(o)
		}
	}
	src, err = format.Source(reg.generateSource(name))
	if err != nil {
		return nil, nil, fmt.Errorf("format registration of %s: %w", p.Path(), err)
	}
	return src, reg.skipped, nil
}

func (reg *registration) registerObject(o types.Object) {
	switch o := o.(type) {
	case *types.Const:
		reg.registerConstant(o)
	case *types.Var:
		fmt.Fprintf(&reg.binds, "%q: r.ValueOf(&%s).Elem(),\n", o.Name(), reg.qualifiedName(o.Name()))
	case *types.Func:
		if o.Signature().TypeParams().Len() > 0 {
			reg.writeSkippedComment(&reg.binds, o, "is generic")
			return
		}
		fmt.Fprintf(&reg.binds, "%q: r.ValueOf(%s),\n", o.Name(), reg.qualifiedName(o.Name()))
	case *types.TypeName:
		reg.registerType(o)
	}
}

func (reg *registration) writeSkippedComment(b *bytes.Buffer, o types.Object, why string) {
	fmt.Fprintf(b, "// %s %s\n", o.Name(), why)
	reg.skipped = append(reg.skipped, o.Name())
}

// registerConstant registers a constant. reflect.ValueOf needs a typed value, so an untyped integer gets the
// first of int, uint64 and float64 that can represent it. Its exact value goes to Untypeds.
func (reg *registration) registerConstant(o *types.Const) {
	expr := reg.qualifiedName(o.Name())
	if b, ok := o.Type().(*types.Basic); ok && b.Info()&types.IsUntyped != 0 {
		if b.Kind() == types.UntypedInt {
			expr = convertInt(expr, o.Val())
		}
		if u := formatUntyped(b.Kind(), o.Val()); u != "" {
			fmt.Fprintf(&reg.untypeds, "%q: %s,\n", o.Name(), strconv.Quote(u))
		}
	}
	fmt.Fprintf(&reg.binds, "%q: r.ValueOf(%s),\n", o.Name(), expr)
}

func convertInt(expr string, v constant.Value) string {
	if _, exact := constant.Int64Val(v); exact {
		return expr
	}
	if _, exact := constant.Uint64Val(v); exact {
		return "uint64(" + expr + ")"
	}
	return "float64(" + expr + ")"
}

// formatUntyped returns an untyped constant in the interpreter's form.
func formatUntyped(kind types.BasicKind, v constant.Value) string {
	switch kind {
	case types.UntypedBool:
		return "bool:" + v.ExactString()
	case types.UntypedInt:
		return "int:" + v.ExactString()
	case types.UntypedRune:
		return "rune:" + v.ExactString()
	case types.UntypedFloat:
		return "float:" + v.ExactString()
	case types.UntypedComplex:
		return "complex:" + constant.Real(v).ExactString() + ":" + constant.Imag(v).ExactString()
	case types.UntypedString:
		return "string:" + constant.StringVal(v)
	}
	return ""
}

// registerType registers a type and, for an interface, the proxy type through which compiled code calls an
// interpreted type.
func (reg *registration) registerType(o *types.TypeName) {
	if isGeneric(o.Type()) {
		reg.writeSkippedComment(&reg.types, o, "is generic")
		return
	}
	face, isInterface := o.Type().Underlying().(*types.Interface)
	if isInterface && !face.IsMethodSet() {
		reg.writeSkippedComment(&reg.types, o, "is a constraint")
		return
	}
	fmt.Fprintf(&reg.types, "%q: r.TypeOf((*%s)(nil)).Elem(),\n", o.Name(), reg.qualifiedName(o.Name()))
	if isInterface && face.NumMethods() > 0 && canWriteInterface(face) {
		reg.writeProxy(o.Name(), face)
		fmt.Fprintf(&reg.proxies, "%q: r.TypeOf((*proxy%s)(nil)).Elem(),\n", o.Name(), o.Name())
	}
}

func isGeneric(t types.Type) bool {
	switch t := t.(type) {
	case *types.Alias:
		return t.TypeParams().Len() > t.TypeArgs().Len() || isGeneric(t.Rhs())
	case *types.Named:
		return t.TypeParams().Len() > t.TypeArgs().Len()
	}
	return false
}

func (reg *registration) qualifiedName(name string) string {
	return reg.importName(reg.pkg) + "." + name
}

func (reg *registration) importName(p *types.Package) string {
	name, ok := reg.imports[p.Path()]
	if !ok {
		name = fmt.Sprintf("p%d_%s", len(reg.imports), p.Name())
		reg.imports[p.Path()] = name
	}
	return name
}

func (reg *registration) generateSource(name string) []byte {
	if _, ok := reg.imports[reg.pkg.Path()]; !ok {
		// All exported objects are generic, but the package is still linked in.
		reg.imports[reg.pkg.Path()] = "_"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated by kernels/build; DO NOT EDIT.\n\npackage %s\n\nimport (\n\tr \"reflect\"\n\n", name)
	b.WriteString("\t\"github.com/cosmos72/gomacro/imports\"\n\n")
	for _, path := range slices.Sorted(maps.Keys(reg.imports)) {
		fmt.Fprintf(&b, "\t%s %q\n", reg.imports[path], path)
	}
	fmt.Fprintf(&b, ")\n\nfunc init() {\nimports.Packages[%q] = imports.Package{\nName: %q,\n", reg.pkg.Path(), reg.pkg.Name())
	for _, part := range []struct {
		head string
		body *bytes.Buffer
	}{
		{"Binds: map[string]r.Value", &reg.binds},
		{"Types: map[string]r.Type", &reg.types},
		{"Proxies: map[string]r.Type", &reg.proxies},
		{"Untypeds: map[string]string", &reg.untypeds},
	} {
		fmt.Fprintf(&b, "%s{\n%s},\n", part.head, part.body)
	}
	fmt.Fprintf(&b, "}\n}\n%s", &reg.decls)
	return b.Bytes()
}

// registrationName returns the name of the generated package for a path.
func registrationName(path string) string {
	return "reg_" + strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(path)
}
