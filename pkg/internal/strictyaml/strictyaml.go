// Package strictyaml decodes YAML into a struct. It returns an error for an unknown key,
// a value of the wrong type, or a cycle of anchors. Each error contains the line, the key
// and what was expected.
//
//	var doc yaml.Node
//	err := yaml.Unmarshal(text, &doc)
//	c := DefaultConfig()
//	err = strictyaml.Decode(&doc, &c)
//	err = strictyaml.SetField(&c, "optimizer.learning_rate=0.1", unset)
package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/internal/nearest"
)

// Decode decodes doc into the struct that dst points to. Fields without a key in doc keep
// their values. For an unknown key, the error contains the line and the most similar key.
// An unquoted None, as in Python, is decoded as null.
func Decode(doc *yaml.Node, dst any) error {
	if doc.Kind == 0 { // an empty file
		return nil
	}
	if err := CheckCycles(doc); err != nil {
		return err
	}
	replaceNoneWithNull(doc, map[*yaml.Node]bool{})
	if err := checkNodeFields(doc, reflect.TypeOf(dst).Elem(), ""); err != nil {
		return err
	}
	return doc.Decode(dst)
}

// CheckCycles returns an error if the value of an anchor in doc contains an alias of the same
// anchor, as in a config that is merged into itself.
func CheckCycles(doc *yaml.Node) error { return checkCycles(doc, nil, map[*yaml.Node]bool{}) }

// checkCycles returns an error if n contains a cycle. inside are the nodes from the root to
// n's parent; clean are the nodes without cycles found so far.
func checkCycles(n *yaml.Node, inside []*yaml.Node, clean map[*yaml.Node]bool) error {
	if n.Kind == yaml.AliasNode {
		if i := slices.Index(inside, n.Alias); i >= 0 {
			path := ""
			for _, between := range inside[i+1:] {
				if between.Anchor != "" {
					path += " in &" + between.Anchor
				}
			}
			return fmt.Errorf("%scycle: alias *%s is used%s inside its own anchor &%s (line %d): a config cannot be merged into itself; move the keys that both need into another anchor",
				linePrefix(n), n.Value, path, n.Alias.Anchor, n.Alias.Line)
		}
		n = n.Alias
	}
	if clean[n] {
		return nil
	}
	inside = append(inside, n)
	for _, c := range n.Content {
		if err := checkCycles(c, inside, clean); err != nil {
			return err
		}
	}
	clean[n] = true
	return nil
}

// replaceNoneWithNull replaces unquoted None by null. seen contains the nodes visited so far.
func replaceNoneWithNull(n *yaml.Node, seen map[*yaml.Node]bool) {
	if n == nil || seen[n] {
		return
	}
	seen[n] = true
	if n.Kind == yaml.ScalarNode && n.Style == 0 && n.Value == "None" {
		n.Tag, n.Value = "!!null", "null"
	}
	for _, c := range n.Content {
		replaceNoneWithNull(c, seen)
	}
	replaceNoneWithNull(n.Alias, seen)
}

// checkNodeFields returns an error if n has a key that the type t does not have, or a value of
// the wrong type. prefix is the path of n, with a dot at its end, for error messages.
func checkNodeFields(n *yaml.Node, t reflect.Type, prefix string) error {
	switch {
	case n.Kind == yaml.DocumentNode:
		return checkNodeFields(n.Content[0], t, prefix)
	case n.Kind == yaml.AliasNode:
		return checkNodeFields(n.Alias, t, prefix)
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for i, c := range n.Content {
			if err := checkNodeFields(c, t.Elem(), fmt.Sprintf("%s[%d]", strings.TrimSuffix(prefix, "."), i)+"."); err != nil {
				return err
			}
		}
		return nil
	case t.Kind() != reflect.Struct || n.Kind == yaml.ScalarNode && n.Tag != "!!null" && implementsScalarStruct(t):
		return checkNodeValue(n, t, strings.TrimSuffix(prefix, "."))
	case n.Kind != yaml.MappingNode:
		if n.Tag == "!!null" {
			return nil
		}
		what, got := strings.TrimSuffix(prefix, "."), strconv.Quote(n.Value)
		what = cmp.Or(what, "a config")
		if n.Kind == yaml.SequenceNode {
			got = "a list"
		}
		return fmt.Errorf("%s%s needs keys and values, not %s", linePrefix(n), what, got)
	}
	fields, names := FieldTypes(t)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Value == "<<" { // a merge key: its value is a mapping with keys of this struct, or a list of such mappings
			if err := checkMergeValue(v, t, prefix); err != nil {
				return err
			}
			continue
		}
		ft, ok := fields[k.Value]
		if !ok {
			return fmt.Errorf("%sunknown key %q%s: use one of %s", linePrefix(k), prefix+k.Value, nearest.Hint(k.Value, names), strings.Join(names, ", "))
		}
		if err := checkNodeFields(v, ft, prefix+k.Value+"."); err != nil {
			return err
		}
	}
	return nil
}

// ScalarStruct is implemented by struct types that YAML may also represent as a single scalar.
// Their UnmarshalYAML decodes both forms.
type ScalarStruct interface {
	yaml.Unmarshaler
	// ScalarKey returns the key of the field for which the text stands.
	ScalarKey() string
}

func implementsScalarStruct(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[ScalarStruct]())
}

// FieldTypes returns the types of the fields of the struct type t by YAML key, and the keys in
// the order of the fields. It leaves out fields with the key -, which YAML does not contain.
func FieldTypes(t reflect.Type) (fields map[string]reflect.Type, names []string) {
	fields = map[string]reflect.Type{}
	for i := range t.NumField() {
		name := FieldKey(t.Field(i))
		if name == "-" {
			continue
		}
		fields[name] = t.Field(i).Type
		names = append(names, name)
	}
	return fields, names
}

// FieldKey returns the YAML key of the struct field f: the name in its yaml tag or, without one,
// the lowercase name of the field.
func FieldKey(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	name = cmp.Or(name, strings.ToLower(f.Name))
	return name
}

// checkMergeValue is checkNodeFields for the value of a merge key (<<), a mapping or a list of
// mappings.
func checkMergeValue(n *yaml.Node, t reflect.Type, prefix string) error {
	if n.Kind != yaml.SequenceNode {
		return checkNodeFields(n, t, prefix)
	}
	for _, c := range n.Content {
		if err := checkNodeFields(c, t, prefix); err != nil {
			return err
		}
	}
	return nil
}

// checkNodeValue returns an error if the value of n cannot be decoded as a t without loss.
func checkNodeValue(n *yaml.Node, t reflect.Type, key string) error {
	v := reflect.New(t)
	err := n.Decode(v.Interface())
	if err == nil && (n.Kind != yaml.ScalarNode || hasUnambiguousForm(n, t)) {
		return nil
	}
	want := map[reflect.Kind]string{
		reflect.Int: "a whole number in decimal digits, such as 16", reflect.Int64: "a whole number in decimal digits, such as 16", reflect.Float64: "a number, such as 0.001 or 1e-3",
		reflect.Bool: "true or false", reflect.String: "a text", reflect.Slice: "a list",
	}[t.Kind()]
	want = cmp.Or(want, t.String())
	got := strconv.Quote(n.Value)
	switch n.Kind {
	case yaml.MappingNode:
		got = "keys and values"
	case yaml.SequenceNode:
		got = "a list"
	}
	return fmt.Errorf("%s%s is %s: expected %s", linePrefix(n), key, got, want)
}

// The number formats that [hasUnambiguousForm] accepts.
var (
	wholeNumber   = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)
	decimalNumber = regexp.MustCompile(`^[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$`)
)

// hasUnambiguousForm reports whether every YAML reader understands the scalar n as the same value
// of type t. Some forms are surprising in YAML: 010 is 8, 1_0 is 10, yes is true, and the decoder
// would truncate 2.5 to 2.
func hasUnambiguousForm(n *yaml.Node, t reflect.Type) bool {
	switch {
	case n.Tag == "!!null" || t == reflect.TypeFor[time.Duration]() || n.Tag == "!!str" && reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()):
		return true
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return wholeNumber.MatchString(n.Value)
	case t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32:
		return decimalNumber.MatchString(n.Value)
	case t.Kind() == reflect.Bool:
		return strings.EqualFold(n.Value, "true") || strings.EqualFold(n.Value, "false")
	case t.Kind() == reflect.Pointer:
		return hasUnambiguousForm(n, t.Elem())
	}
	return true
}

// linePrefix returns the line of n as the beginning of an error message, such as "line 3: ". It
// returns "" for a node that SetField has created.
func linePrefix(n *yaml.Node) string {
	if n.Line == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", n.Line)
}

// SetField sets one field of the struct that dst points to. assignment has the form
// "key.path=value". If the value is null, SetField copies the field from the struct that defaults
// returns. It calls defaults after it has decoded the assignment.
func SetField(dst any, assignment string, defaults func() any) error {
	key, value, ok := strings.Cut(assignment, "=")
	if !ok || key == "" {
		return errors.New("use key=value, for example batch=8")
	}
	var v yaml.Node
	if err := yaml.Unmarshal([]byte(value), &v); err != nil {
		return err
	}
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	if v.Kind == yaml.DocumentNode {
		node = v.Content[0]
		clearLineNumbers(node)
	}
	parts := strings.Split(key, ".")
	for i := len(parts) - 1; i >= 0; i-- {
		node = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: parts[i]}, node}}
	}
	if err := Decode(node, dst); err != nil {
		return err
	}
	resetNullFields(node, reflect.ValueOf(dst).Elem(), reflect.ValueOf(defaults()))
	return nil
}

// resetNullFields sets each field whose value in n is null to its value in defaults, because the
// decoder leaves such fields unchanged.
func resetNullFields(n *yaml.Node, field, defaults reflect.Value) {
	if n.Tag == "!!null" {
		field.Set(defaults)
		return
	}
	if n.Kind != yaml.MappingNode || field.Kind() != reflect.Struct {
		return
	}
	t := field.Type()
	for i := 0; i+1 < len(n.Content); i += 2 {
		for k := range t.NumField() {
			if FieldKey(t.Field(k)) == n.Content[i].Value {
				resetNullFields(n.Content[i+1], field.Field(k), defaults.Field(k))
			}
		}
	}
}

// clearLineNumbers clears the line numbers of n and its descendants, because an assignment has no
// lines to report.
func clearLineNumbers(n *yaml.Node) {
	n.Line = 0
	for _, c := range n.Content {
		clearLineNumbers(c)
	}
}
