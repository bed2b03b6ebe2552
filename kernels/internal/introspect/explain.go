package introspect

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
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
	noMember      = regexp.MustCompile(`type (\S+) has no field (?:or method )?"(\w+)": (.*)`)
	brackets      = regexp.MustCompile(`found '\['$`)
	intRange      = regexp.MustCompile(`^cannot range over (.+) <u?int\d*>$`)
	needsSlice    = regexp.MustCompile(`^cannot use (.+?) (?:\(untyped (\w+) constant\)|<(\w+)>) as (?:type )?<?\[\](int|int64|string|float64)>? `)
	mismatched    = regexp.MustCompile(`mismatched types (?:in binary operation (\S+) between <(\w+)> and <(\w+)>|(?:untyped )?(\w+) and (?:untyped )?(\w+)\)$)`)
	assigned      = regexp.MustCompile(`^incompatible types in assignment: (\w+) = (\w+)$`)
	noField       = regexp.MustCompile(`unknown field '(\w+)' in struct literal of type (\S+)`)
)

// Explain adds advice to the interpreter's message about an unknown name: the missing import, the probable
// name, or why it is not available. The error is at a line and column of code, from 1 and in bytes. Without
// advice, Explain returns the message unchanged.
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

// notInCellsText marks the advice about a name that cells cannot use. Explain recognizes such advice by it.
const notInCellsText = "not available in cells; "

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
		base := strings.TrimSuffix(m[3], "."+m[2])
		if advice := adviseMember(m[1], m[2], base); advice != "" {
			return advice
		}
		return suggestSimilar(m[2], x.memberNames(x.scopeAt(p, p.cursor), base, ""))
	}
	if m := intRange.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("write for i := 0; i < %s; i++ { … }", m[1])
	}
	if m := needsSlice.FindStringSubmatch(message); m != nil {
		if m[2] == m[4] || m[3] == m[4] || m[2] == "float" && m[4] == "float64" || m[2] == "int" && m[4] != "string" {
			return fmt.Sprintf("write []%s{%s}", m[4], m[1])
		}
	}
	if m := mismatched.FindStringSubmatch(message); m != nil {
		return adviseOperands(message, m[2]+m[4], m[3]+m[5])
	}
	if m := assigned.FindStringSubmatch(message); m != nil {
		return adviseOperands(message, m[1], m[2])
	}
	if strings.HasPrefix(message, "unary operation * on non-pointer") {
		return "a power is math.Pow(x, y)"
	}
	if strings.HasPrefix(message, "negative slice index") {
		return "count from the end with len, such as x[1:len(x)-1]"
	}
	if strings.HasPrefix(message, "invalid boolean predicate") {
		return "a condition is a comparison, such as x != 0"
	}
	if m := noField.FindStringSubmatch(message); m != nil {
		name := strings.TrimPrefix(m[2][strings.LastIndex(m[2], "/")+1:], "main.")
		if t, isType := typeOf(x.scopeAt(p, p.cursor), name); isType && t.Kind() == reflect.Struct {
			return suggestSimilar(m[1], x.usableFields(t))
		}
	}
	return ""
}

// adviseMember returns what to write instead of base.name, a method of Python's types, or "". typ is the
// type of base.
func adviseMember(typ, name, base string) string {
	lower := strings.ToLower(name)
	switch {
	case lower == "append" && strings.HasPrefix(typ, "[]"):
		return fmt.Sprintf("write %s = append(%[1]s, x)", base)
	case lower == "len" || lower == "length" || lower == "size":
		return fmt.Sprintf("write len(%s)", base)
	case strings.HasPrefix(typ, "map[") && slices.Contains([]string{"keys", "values", "items", "get"}, lower):
		return fmt.Sprintf("write for key, value := range %s { … }, or value, ok := %[1]s[key]", base)
	case typ == "string" || strings.HasPrefix(base, `"`):
		functions := map[string]string{
			"upper": "ToUpper", "lower": "ToLower", "split": "Split", "join": "Join", "strip": "TrimSpace", "replace": "ReplaceAll",
			"startswith": "HasPrefix", "endswith": "HasSuffix", "find": "Index", "count": "Count",
		}
		if f := functions[lower]; f != "" {
			return fmt.Sprintf("write strings.%s(%s, …)", f, base)
		}
		if lower == "format" {
			return `write fmt.Sprintf("x = %v", x)`
		}
	}
	return ""
}

// adviseOperands returns advice about an operation on types a and b.
func adviseOperands(message, a, b string) string {
	number := func(t string) bool {
		return strings.HasPrefix(t, "int") || strings.HasPrefix(t, "uint") || strings.HasPrefix(t, "float")
	}
	switch {
	case number(a) && number(b):
		return "convert one of them, such as float64(x)"
	case strings.Contains(message, `" % `):
		return "write fmt.Sprintf"
	case strings.Contains(message, `" * `):
		return "write strings.Repeat"
	case a == "string" && b == "rune" || a == "rune" && b == "string":
		return "text is in double quotes; 'a' is the number of a character"
	case a == "uint8" || b == "uint8":
		return "an index of a string is a byte: compare with a character in single quotes, such as 'a'"
	case (a == "string" || b == "string") && (number(a) || number(b)):
		return "write fmt.Sprint(…) to make text of a number"
	}
	return ""
}

// positionOffset returns the byte offset of a line and a column, which begin at 1.
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

// selectedName returns what follows name and a period in the code, such as Println in fmt.Println: the first
// after the cursor, or else the last before it, or else "".
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

// explainName returns advice for an undefined name, or "". selected is the name that the code selects from
// it, as in name.Println, or "".
func (x *Inspector) explainName(p *cursorContext, name, selected string) string {
	if selected != "" {
		if imports := x.findImports(name, selected); len(imports) > 0 {
			return fmt.Sprintf("the package is not imported: write %s at the top of the cell", strings.Join(imports, " or "))
		}
	}
	if line := strings.TrimSpace(p.code[strings.LastIndex(p.code[:p.cursor], "\n")+1:]); strings.HasPrefix(line, "!"+name) {
		return "a command of the shell begins with $, in the first lines of a cell: $" + name
	}
	switch name {
	case "int", "float64", "string", "bool":
		return "a variable is declared by x := 3 or var x int = 3"
	case "None", "none", "null", "NULL":
		return "write nil"
	case "Print", "Printf", "Println", "Sprint", "Sprintf", "Sprintln", "Errorf":
		return "write fmt." + name
	case "str":
		return "write fmt.Sprint(x), or string(b) for bytes"
	case "float", "double":
		return "write float64(x)"
	case "list", "dict", "tuple", "set":
		return "a slice is written []int{1, 2}, a map map[string]int{\"a\": 1}"
	case "pass":
		return "an empty block needs no statement: { }"
	case "input":
		return "write fmt.Scanln(&x)"
	case "abs", "sqrt", "pow", "exp", "floor", "ceil", "round":
		return "write math." + strings.ToUpper(name[:1]) + name[1:]
	case "sum":
		return `write a loop, or floats.Sum of import "gonum.org/v1/gonum/floats"`
	case "sorted":
		return "sort.Ints, sort.Float64s and sort.Strings sort a slice in place"
	case "enumerate", "zip":
		return "write for i, x := range xs { … }"
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

// findImports returns import declarations for the packages called name that declare selected or, if none
// does, for all of them.
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

func visibleNames(c *interp.Comp) []string {
	var list []string
	for ; c != nil; c = c.Outer {
		list = slices.AppendSeq(slices.AppendSeq(list, maps.Keys(c.Binds)), maps.Keys(c.Types))
	}
	slices.Sort(list)
	return removeHidden(slices.Compact(list))
}

// explainSymbol returns advice for a name that a package lacks in the interpreter, or "".
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

func isGeneric(decl, name string) bool {
	return strings.HasPrefix(decl, "func "+name+"[") ||
		strings.HasPrefix(decl, "type "+name+"[") && !strings.HasPrefix(decl, "type "+name+"[]")
}

// suggestAlternative returns what to use instead of a generic function or type.
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

// suggestSimilar suggests the known names that are most similar to name. It returns "" if none is similar.
func suggestSimilar(name string, known []string) string {
	near := cell.NearestNames(name, slices.DeleteFunc(slices.Clone(known), func(n string) bool { return n == name }))
	if len(near) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}
