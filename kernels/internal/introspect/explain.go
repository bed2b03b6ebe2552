package introspect

import (
	"fmt"
	"go/ast"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	interp "github.com/cosmos72/gomacro/fast"

	"lockstep/kernels/internal/cell"
)

// Patterns of the interpreter's messages that Explain extends.
var (
	undefinedName = regexp.MustCompile(`undefined identifier: (\S+)`)
	undefinedBase = regexp.MustCompile(`undefined "(\w+)" in \w+\.(\w+)`)
	noSymbol      = regexp.MustCompile(`package \S+ "([^"]+)" has no symbol (\w+)`)
	notAType      = regexp.MustCompile(`not a type: (\w+)\.(\w+)`)
	noMember      = regexp.MustCompile(`has no field or method "(\w+)": (.*)`)
	brackets      = regexp.MustCompile(`found '\['$`)
	noField       = regexp.MustCompile(`unknown field '(\w+)' in struct literal of type (\S+)`)
)

// Explain adds advice to the interpreter's message about an unknown name: the missing
// import, the name that was probably meant, or the reason why the name is not available.
// The error is at a line and column of code, counted from 1 in bytes. Explain returns the
// message unchanged if it has no advice.
func (x *Inspector) Explain(code string, line, column int, message string) string {
	if m := notAType.FindStringSubmatch(message); m != nil {
		message = fmt.Sprintf("undefined: %s.%s", m[1], m[2])
		if hint := x.findAdvice(code, line, column, m[0]); strings.HasPrefix(hint, m[1]+".") {
			return hint
		} else if hint != "" {
			return message + "; " + hint
		}
		return message
	}
	if strings.Contains(message, "internal error, method type is nil") {
		return "methods of a type that refers to itself do not work in cells; write a plain function"
	}
	hint := x.findAdvice(code, line, column, message)
	switch {
	case hint == "":
		return message
	case noSymbol.MatchString(message) && strings.Contains(hint, notInCellsText):
		return hint // the advice names the name itself
	}
	return message + "; " + hint
}

// notInCellsText is part of the advice about a name that exists but cannot be used in
// cells. Explain recognizes such advice by this text.
const notInCellsText = "not available in cells; "

// findAdvice returns the advice that Explain adds to the message, or "" if there is none.
func (x *Inspector) findAdvice(code string, line, column int, message string) string {
	p := &cursorContext{code: cell.BlankOutCommands(code), tokens: scanTokens(cell.BlankOutCommands(code))}
	p.cursor = positionOffset(p.code, line, column)
	if m := noSymbol.FindStringSubmatch(message); m != nil {
		return x.explainSymbol(m[1], m[2])
	}
	if m := notAType.FindStringSubmatch(message); m != nil {
		if imp := x.resolvePackage(x.scopeAt(p, p.cursor), m[1]); imp != nil {
			return x.explainSymbol(imp.Path, m[2])
		}
	}
	if before := p.tokensBefore(p.cursor); brackets.MatchString(message) && len(before) > 2 && before[len(before)-2].tok == token.PERIOD {
		// The interpreter's parser does not support type arguments.
		n := len(before)
		if imp := x.resolvePackage(x.scopeAt(p, before[n-3].from), before[n-3].lit); imp != nil {
			if e, ok := x.packageDocs(imp.Path)[before[n-1].lit]; ok && isGeneric(e.Decl, before[n-1].lit) {
				return x.explainSymbol(imp.Path, before[n-1].lit)
			}
		}
	}
	if m := undefinedBase.FindStringSubmatch(message); m != nil {
		return x.explainName(p, m[1], m[2])
	}
	if m := undefinedName.FindStringSubmatch(message); m != nil && token.IsIdentifier(m[1]) {
		return x.explainName(p, m[1], p.selectedName(m[1]))
	}
	if m := noMember.FindStringSubmatch(message); m != nil {
		base := strings.TrimSuffix(m[2], "."+m[1])
		return suggestSimilar(m[1], x.memberNames(x.scopeAt(p, p.cursor), base, ""))
	}
	if m := noField.FindStringSubmatch(message); m != nil {
		name := strings.TrimPrefix(m[2][strings.LastIndex(m[2], "/")+1:], "main.")
		if t, isType := typeOf(x.scopeAt(p, p.cursor), name); isType && t.Kind() == reflect.Struct {
			return suggestSimilar(m[1], x.usableFields(t))
		}
	}
	return ""
}

// positionOffset returns the byte offset of a line and column, both counted from 1.
func positionOffset(code string, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		i := strings.IndexByte(code[at:], '\n')
		if i < 0 {
			return len(code)
		}
		at += i + 1
	}
	return min(at+max(column-1, 0), len(code))
}

// selectedName returns the name that follows name and a period in the code, such as
// Println in fmt.Println. It prefers the first occurrence after the cursor, and then the
// last before it. It returns "" if name is never followed by a period.
func (p *cursorContext) selectedName(name string) string {
	found := ""
	for i, t := range p.tokens {
		if t.tok != token.IDENT || t.lit != name || i+2 >= len(p.tokens) || p.tokens[i+1].tok != token.PERIOD {
			continue
		}
		if found = p.tokens[i+2].lit; t.from >= p.cursor {
			break
		}
	}
	return found
}

// explainName returns advice for an undefined name, or "" if there is none. If the code
// selects from the name, as in name.Println, selected is the selected name; otherwise it
// is "".
func (x *Inspector) explainName(p *cursorContext, name, selected string) string {
	if selected != "" {
		if imports := x.findImports(name, selected); len(imports) > 0 {
			return fmt.Sprintf("the package is not imported: write %s at the top of the cell", strings.Join(imports, " or "))
		}
	}
	switch name {
	case "min", "max":
		return fmt.Sprintf("the builtin function %s is not available in cells; compare with if, or use math.%s for float64",
			name, strings.ToUpper(name[:1])+name[1:])
	case "clear":
		return "the builtin function clear is not available in cells; make a new map or slice"
	}
	c := x.scopeAt(p, p.cursor)
	if selected != "" {
		var packages []string
		for _, path := range x.Known {
			packages = append(packages, path[strings.LastIndex(path, "/")+1:])
		}
		slices.Sort(packages)
		return suggestSimilar(name, append(visibleNames(c), slices.Compact(packages)...))
	}
	return suggestSimilar(name, visibleNames(c))
}

// findImports returns import declarations for the packages with the given name that
// declare selected. If no such package declares it, findImports returns import
// declarations for all packages with that name.
func (x *Inspector) findImports(name, selected string) []string {
	var all, having []string
	for _, path := range x.Known {
		p := x.packageDocs(path)
		base := path[strings.LastIndex(path, "/")+1:]
		if base != name && !strings.HasPrefix(p[""].Decl, "package "+name+" ") {
			continue
		}
		text := "import " + strconv.Quote(path)
		all = append(all, text)
		if _, ok := p[selected]; ok {
			having = append(having, text)
		}
	}
	if len(having) > 0 {
		return having
	}
	return all
}

// visibleNames returns all names that are visible in a scope.
func visibleNames(c *interp.Comp) []string {
	var list []string
	for ; c != nil; c = c.Outer {
		for name := range c.Binds {
			list = append(list, name)
		}
		for name := range c.Types {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return removeHidden(slices.Compact(list))
}

// explainSymbol returns advice for a name that the interpreter does not find in a
// package, or "".
func (x *Inspector) explainSymbol(path, name string) string {
	if path == cell.GPUPackage && !slices.Contains(x.Known, path) {
		return "this kernel has only the part of " + path + " that notebooks/first-gpu-kernel.ipynb needs; to have all of it: " + cell.GPUBuild
	}
	docs := x.packageDocs(path)
	if e, ok := docs[name]; ok {
		short := path[strings.LastIndex(path, "/")+1:] + "." + name
		if isGeneric(e.Decl, name) {
			kind := "functions"
			if strings.HasPrefix(e.Decl, "type ") {
				kind = "types"
			}
			return fmt.Sprintf("%s: generic %s are %s%s", short, kind, notInCellsText, suggestAlternative(short))
		}
		if strings.HasPrefix(e.Decl, "type ") {
			return short + ": constraints are " + notInCellsText + "name the types themselves"
		}
	}
	var known []string
	for n, e := range docs {
		if !isGeneric(e.Decl, n) {
			known = append(known, n)
		}
	}
	if imp := x.importPackage(path); imp != nil {
		known = append(known, packageMembers(imp, "")...)
	}
	slices.Sort(known)
	known = slices.DeleteFunc(slices.Compact(known), func(n string) bool { return !ast.IsExported(n) || strings.Contains(n, ".") })
	return suggestSimilar(name, known)
}

// isGeneric reports whether the declaration of name has type parameters.
func isGeneric(decl, name string) bool {
	return strings.HasPrefix(decl, "func "+name+"[") ||
		strings.HasPrefix(decl, "type "+name+"[") && !strings.HasPrefix(decl, "type "+name+"[]")
}

// suggestAlternative returns advice about what to use instead of a generic function or
// type.
func suggestAlternative(name string) string {
	switch name {
	case "slices.Max", "slices.Min":
		return "write a loop, or for []float64 use floats." + strings.TrimPrefix(name, "slices.") + ` of import "gonum.org/v1/gonum/floats"`
	case "slices.Sort":
		return "use sort.Ints, sort.Float64s or sort.Strings"
	case "slices.SortFunc", "slices.SortStableFunc":
		return "use sort.Slice or sort.SliceStable"
	case "slices.BinarySearch":
		return "use sort.SearchInts, sort.SearchFloat64s or sort.SearchStrings"
	case "slices.Equal", "maps.Equal":
		return "use reflect.DeepEqual"
	case "slices.Clone":
		return "use append([]T(nil), s...) with the element type T"
	case "maps.Keys", "maps.Values", "maps.All":
		return "write a loop: for key, value := range m"
	case "cmp.Compare", "cmp.Less":
		return "compare with <, or use strings.Compare"
	case "atomic.Pointer":
		return "use atomic.Value"
	case "sync.OnceValue", "sync.OnceValues":
		return "use sync.Once"
	}
	return "write a loop, or put the call into a compiled package: kernels/README.md says how to add one to the kernel"
}

// suggestSimilar returns a suggestion with the known names that are most similar to name, or
// "" if none is similar.
func suggestSimilar(name string, known []string) string {
	near := cell.NearestNames(name, slices.DeleteFunc(slices.Clone(known), func(n string) bool { return n == name }))
	if len(near) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}
