package show

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"gonum.org/v1/gonum/mat"
	"gorgonia.org/tensor"
)

// The size of what is shown is limited before formatting: a notebook stores its output,
// and nobody can read or save ten million numbers.
const (
	maxItems  = 100     // elements of a slice or map, and bytes of a string in a slice or map
	maxString = 10_000  // bytes of a string that is the value itself
	maxText   = 20_000  // bytes of the complete text
	maxDepth  = 8       // nesting depth of structs, slices and maps
	maxLine   = 80      // characters of a struct in one line
	maxMatrix = 20      // rows or columns of a matrix that is shown completely
	excerpt   = 5       // rows and columns shown at each end of a larger matrix
	maxLeaves = 100_000 // values in a config that is written as YAML
)

// Plain returns the text form of a value: structs with the names of their fields,
// pointers followed, configs as YAML, matrices in rows. Long parts are elided, so that
// time and memory do not grow with the value.
func Plain(v any) string {
	if text, ok := special(v); ok {
		return cut(text, maxText)
	}
	if s, ok := v.(string); ok {
		return cut(s, maxString)
	}
	p := printer{}
	p.value(reflect.ValueOf(v), 0, true)
	return cut(p.b.String(), maxText)
}

// cut shortens a text to at most n bytes and adds its original length.
func cut(s string, n int) string { return cutOf(s, n, len(s)) }

// cutOf does the same as cut for a text of size bytes of which s is the start. s may be
// shorter than the text only if s has more than n bytes.
func cutOf(s string, n, size int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%s… (%d of %d bytes)", s[:n], n, size)
}

// special returns the text of a value with a special form: a config, a matrix and the
// like. ok is false for any other value.
func special(v any) (text string, ok bool) {
	defer func() {
		// The methods may panic for a nil pointer in an interface.
		if recover() != nil {
			text, ok = "", false
		}
	}()
	if m, is := v.(mat.Matrix); is {
		return matrix(m), true
	}
	t := reflect.TypeOf(v)
	if t == nil {
		return "", false
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, is := v.(yaml.Marshaler); is || isConfig(t) {
		if count(reflect.ValueOf(v), maxLeaves, 0) > maxLeaves {
			return "", false
		}
		b, err := yaml.Marshal(v)
		return strings.TrimSuffix(string(b), "\n"), err == nil
	}
	return "", false
}

// isConfig reports whether a struct is written as YAML, because its fields have YAML
// tags.
func isConfig(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		if _, ok := t.Field(i).Tag.Lookup("yaml"); ok {
			return true
		}
	}
	return false
}

// count returns the number of values inside v, or a number above limit as soon as it is
// exceeded. Nesting deeper than in any config also gives a number above limit.
func count(v reflect.Value, limit, depth int) int {
	const deepest = 50
	if depth > deepest {
		return limit + 1
	}
	n := 1
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n += count(v.Elem(), limit, depth+1)
		}
	case reflect.Struct:
		for i := 0; i < v.NumField() && n <= limit; i++ {
			n += count(v.Field(i), limit-n, depth+1)
		}
	case reflect.Slice, reflect.Array:
		for i := 0; i < v.Len() && n <= limit; i++ {
			n += count(v.Index(i), limit-n, depth+1)
		}
	case reflect.Map:
		for it := v.MapRange(); n <= limit && it.Next(); {
			n += count(it.Value(), limit-n, depth+1)
		}
	case reflect.String:
		n += v.Len() / maxItems
	}
	return n
}

// matrix formats a matrix in rows; of a large matrix only the corners.
func matrix(m mat.Matrix) string {
	rows, cols := m.Dims()
	options := []mat.FormatOption{mat.Squeeze()}
	if rows > maxMatrix || cols > maxMatrix {
		options = append(options, mat.Excerpt(excerpt))
	}
	return fmt.Sprintf("%.6v", mat.Formatted(m, options...))
}

// A printer formats a value as text.
type printer struct {
	b    bytes.Buffer
	path []uintptr // addresses of the pointers, slices and maps that contain the value
}

// full reports whether the text has reached its maximum length.
func (p *printer) full() bool { return p.b.Len() > maxText }

// value writes v, which is nested depth levels deep. top is set if v is the printed value
// itself.
func (p *printer) value(v reflect.Value, depth int, top bool) {
	if !v.IsValid() {
		p.b.WriteString("<nil>")
		return
	}
	if p.own(v) {
		return
	}
	if around, again := p.enter(v); again {
		p.b.WriteString("… (cycle)")
		return
	} else if around {
		defer func() { p.path = p.path[:len(p.path)-1] }()
	}
	if depth > maxDepth {
		p.b.WriteString("…")
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		switch {
		case v.IsNil():
			p.b.WriteString("<nil>")
		case top || v.Elem().Kind() == reflect.Struct || v.Elem().Kind() == reflect.Pointer:
			p.b.WriteByte('&')
			p.value(v.Elem(), depth, false)
		default:
			p.value(v.Elem(), depth, false)
		}
	case reflect.Interface:
		p.value(v.Elem(), depth, false)
	case reflect.Struct:
		p.fields(v, depth)
	case reflect.Slice, reflect.Array:
		p.elements(v, depth)
	case reflect.Map:
		p.entries(v, depth)
	case reflect.String:
		if depth == 0 {
			p.b.WriteString(cut(v.String(), maxString))
		} else {
			p.b.WriteString(quoted(v.String()))
		}
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		if v.IsNil() {
			p.b.WriteString("<nil>")
		} else {
			p.b.WriteString(v.Type().String())
		}
	default:
		fmt.Fprint(&p.b, v)
	}
}

// quoted writes a string inside another value.
func quoted(s string) string {
	if len(s) > maxItems {
		return strconv.Quote(s[:maxItems]) + fmt.Sprintf("… (%d bytes)", len(s))
	}
	return strconv.Quote(s)
}

// enter records a pointer, slice or map before its content is written. again reports
// whether the value contains itself.
func (p *printer) enter(v reflect.Value) (around, again bool) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Map:
		if v.IsNil() {
			return false, false
		}
		at := v.Pointer()
		if slices.Contains(p.path, at) {
			return false, true
		}
		p.path = append(p.path, at)
		return true, false
	}
	return false, false
}

// own writes a value that has its own format, such as a time, an error or a matrix. It
// reports whether it did.
func (p *printer) own(v reflect.Value) (ok bool) {
	if !v.CanInterface() || v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer && v.IsNil() {
		return false
	}
	n := p.b.Len()
	defer func() {
		if recover() != nil {
			p.b.Truncate(n)
			ok = false
		}
	}()
	x := v.Interface()
	switch x := x.(type) {
	case mat.Matrix:
		p.b.WriteString(cut(matrix(x), maxText))
		return true
	case *strings.Builder: // its String method does not copy
		p.b.WriteString(cut(x.String(), maxString))
		return true
	}
	if _, ok := x.(error); !ok && large(v) {
		return p.ownLarge(x)
	}
	switch x := x.(type) {
	case fmt.Formatter:
		fmt.Fprint(&p.b, x)
	case error:
		p.b.WriteString(cut(x.Error(), maxString))
	case fmt.Stringer:
		p.b.WriteString(cut(x.String(), maxString))
	default:
		return false
	}
	return true
}

// large reports whether formatting v with its own method may take long.
func large(v reflect.Value) bool {
	return v.Type().NumMethod() > 0 && count(v, maxLeaves, 0) > maxLeaves
}

// ownLarge writes a large value of a known type without its own method, which would
// format all of it. It reports false for other types; their fields are written instead.
func (p *printer) ownLarge(x any) bool {
	switch x := x.(type) {
	case *bytes.Buffer:
		p.b.WriteString(cutOf(string(x.Bytes()[:min(x.Len(), maxString+1)]), maxString, x.Len()))
	case tensor.Tensor:
		fmt.Fprintf(&p.b, "%T of shape %v: ", x, x.Shape())
		p.value(reflect.ValueOf(x.Data()), 1, false)
	default:
		return false
	}
	return true
}

// typeName returns a struct type's name, without the interpreter's package name main.
func typeName(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	return strings.TrimPrefix(t.String(), "main.")
}

// readableFields returns the indices of the fields that a cell can use, or of all fields if it
// can use none.
func readableFields(t reflect.Type) []int {
	var some, all []int
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() || fieldName(f.Name) != f.Name {
			some = append(some, i)
		}
		all = append(all, i)
	}
	if len(some) == 0 {
		return all
	}
	return some
}

// fields writes a struct in one line if it fits, and otherwise with one line per field.
func (p *printer) fields(v reflect.Value, depth int) {
	t := v.Type()
	var names, texts []string
	width, size, lines := 0, len(typeName(t)), false
	list := readableFields(t)
	for n, i := range list {
		if p.full() || size > maxText {
			names, texts = append(names, "…"), append(texts, fmt.Sprintf("(%d more fields)", len(list)-n))
			break
		}
		inner := printer{path: p.path}
		inner.value(v.Field(i), depth+1, false)
		name, text := fieldName(t.Field(i).Name), inner.b.String()
		names, texts = append(names, name), append(texts, text)
		width = max(width, utf8.RuneCountInString(name))
		size += len(name) + len(text) + 4
		lines = lines || strings.Contains(text, "\n")
	}
	p.b.WriteString(typeName(t))
	p.b.WriteByte('{')
	if size <= maxLine && !lines {
		for i := range names {
			if i > 0 {
				p.b.WriteString(", ")
			}
			p.b.WriteString(names[i] + ": " + texts[i])
		}
		p.b.WriteByte('}')
		return
	}
	for i := range names {
		pad := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(names[i])))
		p.b.WriteString("\n  " + names[i] + ": " + pad + strings.ReplaceAll(texts[i], "\n", "\n  "))
	}
	p.b.WriteString("\n}")
}

// fieldName returns the name of a field as the cell wrote it. The interpreter adds a
// special character before the names of unexported and embedded fields.
func fieldName(name string) string {
	return strings.TrimLeft(name, "\U00012038\U00012039")
}

// elements writes a slice or an array in brackets, as package fmt does, with the number
// of omitted elements at the end.
func (p *printer) elements(v reflect.Value, depth int) {
	n := v.Len()
	// Up to a thousand numbers are readable; of a longer list only the first elements are
	// shown.
	shown := n
	if n > 10*maxItems {
		shown = maxItems
	}
	sep := " "
	if e := v.Type().Elem(); e.Kind() == reflect.Struct || e.Kind() == reflect.Pointer && e.Elem().Kind() == reflect.Struct {
		sep = "\n "
	}
	p.b.WriteByte('[')
	for i := range shown {
		if i > 0 {
			p.b.WriteString(sep)
		}
		if p.full() {
			shown = i
			break
		}
		if e := v.Index(i); e.Kind() == reflect.String {
			p.b.WriteString(cut(e.String(), maxItems))
		} else {
			p.value(e, depth+1, false)
		}
	}
	if shown < n {
		fmt.Fprintf(&p.b, "%s… (%d more of %d)", sep, n-shown, n)
	}
	p.b.WriteByte(']')
}

// entries writes a map as package fmt does. Of a large map it writes only some entries.
// They are not the first in the order of the keys, because that would require reading all
// keys.
func (p *printer) entries(v reflect.Value, depth int) {
	type entry struct{ key, value string }
	var list []entry
	size := 0
	for it := v.MapRange(); it.Next() && len(list) < maxItems && size < maxText; {
		var key, value printer
		value.path = p.path
		key.value(it.Key(), 0, false)
		value.value(it.Value(), depth+1, false)
		if it.Value().Kind() == reflect.String {
			value.b.Reset()
			value.b.WriteString(cut(it.Value().String(), maxItems))
		}
		list = append(list, entry{cut(key.b.String(), maxItems), value.b.String()})
		size += key.b.Len() + value.b.Len()
	}
	slices.SortFunc(list, func(a, b entry) int {
		x, errX := strconv.ParseFloat(a.key, 64)
		y, errY := strconv.ParseFloat(b.key, 64)
		if errors.Join(errX, errY) == nil && x != y {
			return int(max(-1, min(1, (x-y)*1e308)))
		}
		return strings.Compare(a.key, b.key)
	})
	p.b.WriteString("map[")
	for i, e := range list {
		if i > 0 {
			p.b.WriteByte(' ')
		}
		p.b.WriteString(e.key + ":" + e.value)
	}
	if n := v.Len() - len(list); n > 0 {
		fmt.Fprintf(&p.b, " … (%d more of %d)", n, v.Len())
	}
	p.b.WriteByte(']')
}
