package main

import (
	"fmt"
	"go/types"
	"strings"
)

// writeProxy generates the struct type through which an interpreted value satisfies a compiled interface.
// Each method calls a function field, which the interpreter sets; it prescribes their names and order.
func (reg *registration) writeProxy(name string, face *types.Interface) {
	var fields, methods strings.Builder
	for m := range face.Methods() {
		sig := m.Signature()
		params, args := reg.formatParameters(sig)
		results, ret := reg.formatResults(sig), ""
		if results != "" {
			ret = "return "
		}
		fieldParams := append([]string{"obj interface{}"}, params...)
		fmt.Fprintf(&fields, "%s_ func(%s) %s\n", m.Name(), strings.Join(fieldParams, ", "), results)
		fmt.Fprintf(&methods, "\nfunc (p *proxy%s) %s(%s) %s { %sp.%s_(%s) }\n", name, m.Name(), strings.Join(params, ", "),
			results, ret, m.Name(), strings.Join(append([]string{"p.Object"}, args...), ", "))
	}
	fmt.Fprintf(&reg.decls, "\ntype proxy%s struct {\nObject interface{}\n%s}\n%s", name, &fields, &methods)
}

// formatParameters returns parameters, such as "a0 int", and the arguments that pass them on, such as "a0".
func (reg *registration) formatParameters(sig *types.Signature) (params, args []string) {
	n := sig.Params().Len()
	for i := range n {
		arg := fmt.Sprintf("a%d", i)
		t := types.TypeString(sig.Params().At(i).Type(), reg.importName)
		if sig.Variadic() && i == n-1 {
			params = append(params, arg+" ..."+strings.TrimPrefix(t, "[]"))
			args = append(args, arg+"...")
			continue
		}
		params = append(params, arg+" "+t)
		args = append(args, arg)
	}
	return params, args
}

// formatResults returns the result types in parentheses, or "". It omits the results' names, one of which
// might be the receiver's.
func (reg *registration) formatResults(sig *types.Signature) string {
	var list []string
	for v := range sig.Results().Variables() {
		list = append(list, types.TypeString(v.Type(), reg.importName))
	}
	if len(list) == 0 {
		return ""
	}
	return "(" + strings.Join(list, ", ") + ")"
}

// canWriteInterface reports whether another package can write the types of all methods. Otherwise the
// interface has no proxy, and no interpreted type can satisfy it.
func canWriteInterface(face *types.Interface) bool {
	for m := range face.Methods() {
		// A proxy has a field named Object, so it cannot have a method of this name.
		if !m.Exported() || m.Name() == "Object" || !canWriteTuple(m.Signature().Params()) || !canWriteTuple(m.Signature().Results()) {
			return false
		}
	}
	return true
}

func canWriteTuple(t *types.Tuple) bool {
	for v := range t.Variables() {
		if !canWriteType(v.Type()) {
			return false
		}
	}
	return true
}

// canWriteType reports whether another package can refer to the type in its source.
func canWriteType(t types.Type) bool {
	switch t := t.(type) {
	case *types.Basic:
		return t.Kind() != types.UnsafePointer && t.Kind() != types.Invalid
	case *types.Alias:
		return canWriteName(t.Obj()) && canWriteTypes(t.TypeArgs())
	case *types.Named:
		return canWriteName(t.Obj()) && canWriteTypes(t.TypeArgs())
	case *types.Pointer:
		return canWriteType(t.Elem())
	case *types.Slice:
		return canWriteType(t.Elem())
	case *types.Array:
		return canWriteType(t.Elem())
	case *types.Chan:
		return canWriteType(t.Elem())
	case *types.Map:
		return canWriteType(t.Key()) && canWriteType(t.Elem())
	case *types.Signature:
		return canWriteTuple(t.Params()) && canWriteTuple(t.Results())
	case *types.Interface:
		return canWriteInterface(t)
	case *types.Struct:
		for f := range t.Fields() {
			if !f.Exported() || !canWriteType(f.Type()) {
				return false
			}
		}
		return true
	}
	return false
}

func canWriteTypes(list *types.TypeList) bool {
	for t := range list.Types() {
		if !canWriteType(t) {
			return false
		}
	}
	return true
}

// canWriteName reports whether a type's name is exported by a package that generated source may import.
func canWriteName(o *types.TypeName) bool {
	return o.Pkg() == nil || o.Exported() && isImportable(o.Pkg().Name(), o.Pkg().Path())
}
