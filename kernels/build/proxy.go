package main

import (
	"fmt"
	"go/types"
	"strings"
)

// proxy generates the struct through which an interpreted value satisfies a compiled
// interface. It has one function field per method, and methods that call the fields. The
// interpreter sets the fields; it prescribes their names and order.
func (reg *registration) proxy(name string, face *types.Interface) {
	var fields, methods strings.Builder
	for m := range face.Methods() {
		sig := m.Signature()
		params, args := reg.parameters(sig)
		results, ret := reg.results(sig), ""
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

// parameters returns a signature's parameters, and the arguments with which a method
// passes them on.
func (reg *registration) parameters(sig *types.Signature) (params, args []string) {
	n := sig.Params().Len()
	for i := range n {
		arg := fmt.Sprintf("a%d", i)
		t := types.TypeString(sig.Params().At(i).Type(), reg.qualifier)
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

// results returns a signature's result types, in parentheses, or "" if it has none. The
// names of the results are left out: one of them might be the same as the receiver's.
func (reg *registration) results(sig *types.Signature) string {
	var list []string
	for v := range sig.Results().Variables() {
		list = append(list, types.TypeString(v.Type(), reg.qualifier))
	}
	if len(list) == 0 {
		return ""
	}
	return "(" + strings.Join(list, ", ") + ")"
}

// writable reports whether the types of all methods can be written in the source of
// another package. An interface for which this is impossible is registered without a
// proxy: no interpreted type could satisfy it.
func writable(face *types.Interface) bool {
	for m := range face.Methods() {
		// A proxy has a field named Object, so it cannot have a method of this name.
		if !m.Exported() || m.Name() == "Object" || !writableTuple(m.Signature().Params()) || !writableTuple(m.Signature().Results()) {
			return false
		}
	}
	return true
}

func writableTuple(t *types.Tuple) bool {
	for v := range t.Variables() {
		if !writableType(v.Type()) {
			return false
		}
	}
	return true
}

func writableType(t types.Type) bool {
	switch t := t.(type) {
	case *types.Basic:
		return t.Kind() != types.UnsafePointer && t.Kind() != types.Invalid
	case *types.Alias:
		return writableName(t.Obj()) && writableTypes(t.TypeArgs())
	case *types.Named:
		return writableName(t.Obj()) && writableTypes(t.TypeArgs())
	case *types.Pointer:
		return writableType(t.Elem())
	case *types.Slice:
		return writableType(t.Elem())
	case *types.Array:
		return writableType(t.Elem())
	case *types.Chan:
		return writableType(t.Elem())
	case *types.Map:
		return writableType(t.Key()) && writableType(t.Elem())
	case *types.Signature:
		return writableTuple(t.Params()) && writableTuple(t.Results())
	case *types.Interface:
		return writable(t)
	case *types.Struct:
		for f := range t.Fields() {
			if !f.Exported() || !writableType(f.Type()) {
				return false
			}
		}
		return true
	}
	return false
}

func writableTypes(list *types.TypeList) bool {
	for t := range list.Types() {
		if !writableType(t) {
			return false
		}
	}
	return true
}

// writableName reports whether a type's name is exported by a package that the
// generated source may import.
func writableName(o *types.TypeName) bool {
	return o.Pkg() == nil || o.Exported() && importable(o.Pkg().Name(), o.Pkg().Path())
}
