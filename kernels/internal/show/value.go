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

// Limits of the shown text, applied before formatting. The notebook file contains the output, and ten
// million numbers would make it too large to save or open.
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

// formatText formats structs with their fields' names, pointers followed, configs as YAML, matrices in rows.
// It omits long parts, so that time and memory do not grow with the value.
func formatText(v any) string {
	if text, ok := formatConfigOrMatrix(v); ok {
		return shorten(text, maxText)
	}
	if s, ok := v.(string); ok {
		return shorten(s, maxString)
	}
	p := printer{}
	p.writeValue(reflect.ValueOf(v), 0, true)
	return shorten(p.b.String(), maxText)
}

// shorten shortens s to at most n bytes and adds its original length.
func shorten(s string, n int) string { return shortenPrefix(s, n, len(s)) }

// shortenPrefix is shorten for a text of size bytes, of which s contains at least the first n+1.
func shortenPrefix(s string, n, size int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%s… (%d of %d bytes)", s[:n], n, size)
}

func formatConfigOrMatrix(v any) (text string, ok bool) {
	defer func() {
		// The methods may panic for a nil pointer in an interface.
		if recover() != nil {
			text, ok = "", false
		}
	}()
	if m, is := v.(mat.Matrix); is {
		return formatMatrix(m), true
	}
	t := reflect.TypeOf(v)
	if t == nil {
		return "", false
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, is := v.(yaml.Marshaler); is || isConfig(t) {
		if countValues(reflect.ValueOf(v), maxLeaves, 0) > maxLeaves {
			return "", false
		}
		b, err := yaml.Marshal(v)
		return strings.TrimSuffix(string(b), "\n"), err == nil
	}
	return "", false
}

// isConfig reports whether a struct is a config, shown as YAML: it has a field with a YAML tag.
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

// countValues returns the number of values inside v. It returns more than limit as soon as limit is
// exceeded, and for values that are nested too deeply.
func countValues(v reflect.Value, limit, depth int) int {
	const deepest = 50
	if depth > deepest {
		return limit + 1
	}
	n := 1
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n += countValues(v.Elem(), limit, depth+1)
		}
	case reflect.Struct:
		for i := 0; i < v.NumField() && n <= limit; i++ {
			n += countValues(v.Field(i), limit-n, depth+1)
		}
	case reflect.Slice, reflect.Array:
		for i := 0; i < v.Len() && n <= limit; i++ {
			n += countValues(v.Index(i), limit-n, depth+1)
		}
	case reflect.Map:
		for it := v.MapRange(); n <= limit && it.Next(); {
			n += countValues(it.Value(), limit-n, depth+1)
		}
	case reflect.String:
		n += v.Len() / maxItems
	}
	return n
}

// formatMatrix formats a matrix in rows, of a large one only the corners.
func formatMatrix(m mat.Matrix) string {
	rows, cols := m.Dims()
	options := []mat.FormatOption{mat.Squeeze()}
	if rows > maxMatrix || cols > maxMatrix {
		options = append(options, mat.Excerpt(excerpt))
	}
	return fmt.Sprintf("%.6v", mat.Formatted(m, options...))
}

type printer struct {
	b    bytes.Buffer
	path []uintptr // addresses of the pointers, slices and maps that contain the value
}

func (p *printer) isFull() bool { return p.b.Len() > maxText }

// writeValue writes v, which is nested depth levels deep. top is true for the printed value itself.
func (p *printer) writeValue(v reflect.Value, depth int, top bool) {
	if !v.IsValid() {
		p.b.WriteString("<nil>")
		return
	}
	if p.writeOwnFormat(v) {
		return
	}
	if entered, cycle := p.enterReference(v); cycle {
		p.b.WriteString("… (cycle)")
		return
	} else if entered {
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
			p.writeValue(v.Elem(), depth, false)
		default:
			p.writeValue(v.Elem(), depth, false)
		}
	case reflect.Interface:
		p.writeValue(v.Elem(), depth, false)
	case reflect.Struct:
		p.writeFields(v, depth)
	case reflect.Slice, reflect.Array:
		p.writeElements(v, depth)
	case reflect.Map:
		p.writeMap(v, depth)
	case reflect.String:
		if depth == 0 {
			p.b.WriteString(shorten(v.String(), maxString))
		} else {
			p.b.WriteString(quote(v.String()))
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

// quote quotes a string inside another value, shortened if it is long.
func quote(s string) string {
	if len(s) > maxItems {
		return strconv.Quote(s[:maxItems]) + fmt.Sprintf("… (%d bytes)", len(s))
	}
	return strconv.Quote(s)
}

// enterReference records a pointer or map before its content is written. cycle is true if the value contains
// itself.
func (p *printer) enterReference(v reflect.Value) (entered, cycle bool) {
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

// writeOwnFormat writes a value with its own format, such as a time, an error or a matrix. It returns false,
// and writes nothing, for any other value.
func (p *printer) writeOwnFormat(v reflect.Value) (ok bool) {
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
		p.b.WriteString(shorten(formatMatrix(x), maxText))
		return true
	case *strings.Builder: // its String method does not copy
		p.b.WriteString(shorten(x.String(), maxString))
		return true
	}
	if _, ok := x.(error); !ok && isLarge(v) {
		return p.writeLarge(x)
	}
	switch x := x.(type) {
	case fmt.Formatter:
		fmt.Fprint(&p.b, x)
	case error:
		p.b.WriteString(shorten(x.Error(), maxString))
	case fmt.Stringer:
		p.b.WriteString(shorten(x.String(), maxString))
	default:
		return false
	}
	return true
}

// isLarge reports whether formatting v with its own method may take long.
func isLarge(v reflect.Value) bool {
	return v.Type().NumMethod() > 0 && countValues(v, maxLeaves, 0) > maxLeaves
}

// writeLarge writes a large value without its own method, which would format all of it. It returns false for
// unknown types, whose fields are written instead.
func (p *printer) writeLarge(x any) bool {
	switch x := x.(type) {
	case *bytes.Buffer:
		p.b.WriteString(shortenPrefix(string(x.Bytes()[:min(x.Len(), maxString+1)]), maxString, x.Len()))
	case tensor.Tensor:
		fmt.Fprintf(&p.b, "%T of shape %v: ", x, x.Shape())
		p.writeValue(reflect.ValueOf(x.Data()), 1, false)
	default:
		return false
	}
	return true
}

// typeName returns the name of a struct type, without main, the interpreter's package.
func typeName(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	return strings.TrimPrefix(t.String(), "main.")
}

// readableFields returns the indices of the fields that a cell can use or, if there are none, of all fields.
func readableFields(t reflect.Type) []int {
	var some, all []int
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() || sourceFieldName(f.Name) != f.Name {
			some = append(some, i)
		}
		all = append(all, i)
	}
	if len(some) == 0 {
		return all
	}
	return some
}

// writeFields writes a struct in one line if it fits, or else with one line per field.
func (p *printer) writeFields(v reflect.Value, depth int) {
	t := v.Type()
	var names, texts []string
	width, size, lines := 0, len(typeName(t)), false
	list := readableFields(t)
	for n, i := range list {
		if p.isFull() || size > maxText {
			names, texts = append(names, "…"), append(texts, fmt.Sprintf("(%d more fields)", len(list)-n))
			break
		}
		inner := printer{path: p.path}
		inner.writeValue(v.Field(i), depth+1, false)
		name, text := sourceFieldName(t.Field(i).Name), inner.b.String()
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

// sourceFieldName returns a field's name in the cell, without the character that the interpreter adds before
// unexported and embedded fields.
func sourceFieldName(name string) string {
	return strings.TrimLeft(name, "\U00012038\U00012039")
}

// writeElements writes a slice or an array as package fmt does, and the number of omitted elements.
func (p *printer) writeElements(v reflect.Value, depth int) {
	n := v.Len()
	// Up to a thousand numbers are readable.
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
		if p.isFull() {
			shown = i
			break
		}
		if e := v.Index(i); e.Kind() == reflect.String {
			p.b.WriteString(shorten(e.String(), maxItems))
		} else {
			p.writeValue(e, depth+1, false)
		}
	}
	if shown < n {
		fmt.Fprintf(&p.b, "%s… (%d more of %d)", sep, n-shown, n)
	}
	p.b.WriteByte(']')
}

// writeMap writes a map as package fmt does. The entries that it writes of a large map are not the first by
// their keys, because sorting would require reading all keys.
func (p *printer) writeMap(v reflect.Value, depth int) {
	type entry struct{ key, value string }
	var list []entry
	size := 0
	for it := v.MapRange(); it.Next() && len(list) < maxItems && size < maxText; {
		var key, value printer
		value.path = p.path
		key.writeValue(it.Key(), 0, false)
		value.writeValue(it.Value(), depth+1, false)
		if it.Value().Kind() == reflect.String {
			value.b.Reset()
			value.b.WriteString(shorten(it.Value().String(), maxItems))
		}
		list = append(list, entry{shorten(key.b.String(), maxItems), value.b.String()})
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
