package course

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
)

func (f *Function) checkCases(answer map[string]any) error {
	if err := checkAnswerKeys(answer, []string{f.Name}); err != nil {
		return err
	}
	function := reflect.ValueOf(answer[f.Name])
	if function.Kind() != reflect.Func {
		return fmt.Errorf("%s: got %T, want the function itself, without parentheses", f.Name, answer[f.Name])
	}
	for _, c := range f.Cases {
		arguments, err := convertArguments(function.Type(), c.In)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		call := f.Name + "(" + formatArguments(arguments) + ")" // before the function can change its arguments
		got, err := callFunction(function, arguments)
		if err != nil {
			return fmt.Errorf("%s: %w", call, err)
		}
		if got.Kind() == reflect.Interface {
			got = got.Elem()
		}
		want, err := convertTo(got.Type(), c.Out)
		if err != nil || !almostEqual(got, want) {
			return fmt.Errorf("%s returned %v, which is wrong", call, got.Interface())
		}
	}
	return nil
}

// callFunction calls function with the arguments. If function panics, it returns an error.
func callFunction(function reflect.Value, arguments []reflect.Value) (result reflect.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			text := strings.TrimPrefix(fmt.Sprint(p), "reflect: ") // of an interpreted function
			if strings.Contains(text, "signal: interrupt") {
				err = errors.New("was interrupted: look for a loop that does not end")
				return
			}
			err = fmt.Errorf("panic: %s; call it in a cell of your own to see the line", text)
		}
	}()
	results := function.Call(arguments)
	if len(results) != 1 {
		return result, fmt.Errorf("returned %s, want one", english.FormatCount(len(results), "value"))
	}
	return results[0], nil
}

func convertArguments(function reflect.Type, in []any) ([]reflect.Value, error) {
	if function.NumIn() != len(in) {
		return nil, fmt.Errorf("the function has %s, want %d", english.FormatCount(function.NumIn(), "parameter"), len(in))
	}
	var all []reflect.Value
	for i, v := range in {
		argument, err := convertTo(function.In(i), v)
		if err != nil {
			return nil, fmt.Errorf("parameter %d: %w", i+1, err)
		}
		all = append(all, argument)
	}
	return all, nil
}

// convertTo converts v to typ. v is a number, text, bool or list from a task file.
func convertTo(typ reflect.Type, v any) (reflect.Value, error) {
	value := reflect.ValueOf(v)
	list, isList := v.([]any)
	switch {
	case typ.Kind() == reflect.Slice && isList:
		slice := reflect.MakeSlice(typ, len(list), len(list))
		for i, element := range list {
			converted, err := convertTo(typ.Elem(), element)
			if err != nil {
				return slice, err
			}
			slice.Index(i).Set(converted)
		}
		return slice, nil
	case isNumericKind(value.Kind()) && isNumericKind(typ.Kind()), value.Kind() == typ.Kind() && !isList:
		return value.Convert(typ), nil
	}
	return reflect.Value{}, fmt.Errorf("has type %s, which does not take %v", typ, v)
}

func isNumericKind(k reflect.Kind) bool {
	return k >= reflect.Int && k <= reflect.Float64 && k != reflect.Uintptr
}

// floatTolerance is the largest relative difference between results that count as equal. They may
// differ because numbers were added in a different order.
const floatTolerance = 1e-6

// almostEqual reports whether two values of the same type are equal, where floats may differ by
// floatTolerance.
func almostEqual(a, b reflect.Value) bool {
	switch {
	case a.Kind() == reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !almostEqual(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case a.CanFloat():
		return floatsAlmostEqual(a.Float(), b.Float())
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

func floatsAlmostEqual(a, b float64) bool {
	return a == b || math.Abs(a-b) <= floatTolerance*max(math.Abs(a), math.Abs(b), 1e-3)
}

func formatArguments(arguments []reflect.Value) string {
	texts := make([]string, len(arguments))
	for i, a := range arguments {
		texts[i] = fmt.Sprintf("%v", a.Interface())
	}
	return strings.Join(texts, ", ")
}

// elementType returns the type of the numbers in the argument, "int" or "float64".
func (a Argument) elementType() (string, error) {
	element := strings.TrimLeft(a.Type, "[]")
	switch {
	case element != "int" && element != "float64":
		return "", fmt.Errorf("unknown type %q: use int, float64, or slices of them such as [][]float64", a.Type)
	case a.Type != strings.Repeat("[]", len(a.Lengths))+element:
		return "", fmt.Errorf("type %s needs a length for each level of slices, got %s", a.Type, english.FormatCount(len(a.Lengths), "length"))
	case a.Min > a.Max:
		return "", fmt.Errorf("min %g is more than max %g", a.Min, a.Max)
	}
	for _, length := range a.Lengths {
		if n, err := strconv.Atoi(length); len(length) != 1 && (err != nil || n < 0) {
			return "", fmt.Errorf("invalid length %q: use a number or one letter", length)
		}
	}
	return element, nil
}

// randomCallSource returns Go source that calls the function with random arguments.
func (f *Function) randomCallSource(random *rand.Rand) (string, error) {
	letters := map[string]int{}
	texts := make([]string, len(f.Arguments))
	for i, a := range f.Arguments {
		element, err := a.elementType()
		if err != nil {
			return "", err
		}
		texts[i] = a.randomLiteral(random, a.Type, element, a.Lengths, letters)
	}
	return f.Name + "(" + strings.Join(texts, ", ") + ")", nil
}

// randomLiteral returns Go source for a random value of type typ. element is the type of its numbers, and
// lengths and letters determine the lengths of slices.
func (a Argument) randomLiteral(random *rand.Rand, typ, element string, lengths []string, letters map[string]int) string {
	if len(lengths) == 0 {
		v := a.Min + random.Float64()*(a.Max-a.Min)
		if element == "int" {
			return strconv.Itoa(int(a.Min) + random.IntN(int(a.Max-a.Min)+1))
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	n, err := strconv.Atoi(lengths[0])
	if err != nil {
		if letters[lengths[0]] == 0 {
			letters[lengths[0]] = 2 + random.IntN(5)
		}
		n = letters[lengths[0]]
	}
	items := make([]string, n)
	for i := range items {
		items[i] = a.randomLiteral(random, typ[2:], element, lengths[1:], letters)
	}
	return typ + "{" + strings.Join(items, ", ") + "}"
}

// compareResults returns an error if two results differ by more than rounding. got and want are
// printed by kernels.
func compareResults(got, want string) error {
	fields := func(text string) []string {
		return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("[](){}, \n\t", r) })
	}
	a, b := fields(got), fields(want)
	if len(a) != len(b) {
		return errors.New("the result has another number of values")
	}
	for i := range a {
		x, err1 := strconv.ParseFloat(a[i], 64)
		y, err2 := strconv.ParseFloat(b[i], 64)
		if a[i] != b[i] && (err1 != nil || err2 != nil || !floatsAlmostEqual(x, y)) {
			return errors.New("the result is wrong")
		}
	}
	return nil
}
