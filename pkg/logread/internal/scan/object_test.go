package scan

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

// TestDecodeString: the content of a string is decoded, unless it is malformed.
func TestDecodeString(t *testing.T) {
	for text, want := range map[string]string{`""`: "", `"a"`: "a", `"a\nb \u00e9"`: "a\nb é", `"\x"`: `\x`} {
		if got := DecodeJSONString(UnquoteJSON([]byte(text))); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestElements: the elements of a list are found until it is malformed.
func TestElements(t *testing.T) {
	for list, want := range map[string][]string{
		`[]`: nil, `null`: nil, `[1]`: {"1"}, "[\n 1, \"a,]\",\t{\"b\": [2]} , [3]\n]": {"1", `"a,]"`, `{"b": [2]}`, "[3]"}, `[1, "a`: {"1"},
	} {
		var got []string
		for e := range JSONElements([]byte(list)) {
			got = append(got, string(e))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", list, got, want)
		}
	}
}

// TestObjectWithin: an object at the beginning of a text ends where JSONValueLength finds its end, and no shorter text has a
// complete object. The texts are short ones of the characters that the syntax consists of.
func TestObjectWithin(t *testing.T) {
	complete := 0
	r := rand.New(rand.NewPCG(1, 2))
	for range 300_000 {
		text := []byte(`{"a":`)
		for n := r.IntN(12); n > 0; n-- {
			text = append(text, `{}[]",:1 \b`[r.IntN(11)])
		}
		for n := range len(text) + 1 {
			o := ObjectIterator{Text: text[:n], within: true}
			for range o.Members() {
			}
			if o.Bad {
				continue
			}
			if complete++; o.Offset() != JSONValueLength(text) {
				t.Fatalf("%s: the object has %d bytes, ValueLength returns %d", text, o.Offset(), JSONValueLength(text))
			}
			break
		}
	}
	if complete < 10_000 {
		t.Errorf("only %d of the texts begin with an object", complete)
	}
}

// TestSkipTo: an object with the text of another one's key is read like any other, whatever blanks follow.
func TestSkipTo(t *testing.T) {
	first := ObjectIterator{Text: []byte(`{"a":1, "b": 2}`)}
	first.NextKey()
	begin := first.Text[:first.Offset()]
	for text, want := range map[string]string{`{"a":  5}`: "5", `{"a":"5"}`: `"5"`, `{"a":-.5e1,"b":2}`: "-5", `{"a":1x}`: "1x", `{"a":`: "bad", `{"a":}`: "bad", `{"ab":1}`: "other"} {
		o := ObjectIterator{Text: []byte(text)}
		got := "other"
		if o.SkipTo(begin) {
			if v, ok := o.Number(); ok {
				got = strconv.FormatFloat(v, 'g', -1, 64)
			} else if value, ok := o.Value(); ok {
				got = string(value)
			} else {
				got = "bad"
			}
			if o.Bad != (got == "bad") {
				t.Errorf("%s: got %s, bad %v", text, got, o.Bad)
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// TestJSONReader: a document is read in any pieces, and the rest of a damaged one is an error.
func TestJSONReader(t *testing.T) {
	read := func(text string) (keys []string, err error) {
		s := NewJSONReader(iotest.OneByteReader(strings.NewReader(text)))
		if s.NextNonSpace() != '{' {
			t.Fatalf("%s is not an object", text)
		}
		err = s.ReadObject(func(key string, c byte) error {
			keys = append(keys, key)
			if c != '[' {
				_, err := s.ReadValue(40)
				return err
			}
			s.NextNonSpace()
			return s.ReadList(func(byte) error {
				value, err := s.ReadValue(20)
				keys = append(keys, string(value))
				return err
			})
		})
		return keys, err
	}
	keys, err := read(` {"a": 1, "b": ["x", {"y": "]"}], "c": {"d": ["\"}"]}, "e": true}`)
	if want := []string{"a", "b", `"x"`, `{"y": "]"}`, "c", "e"}; err != nil || !slices.Equal(keys, want) {
		t.Errorf("got %q and the error %v, want %q", keys, err, want)
	}
	for _, torn := range []string{`{`, `{"a`, `{"a"`, `{"a":`, `{"a": 1`, `{"a": [`, `{"a": ["x"`, `{"a": ["x`, `{"a": {"b": "\`} {
		if _, err := read(torn); !errors.Is(err, ErrTruncated) {
			t.Errorf("%s: got the error %v, want %v", torn, err, ErrTruncated)
		}
	}
	for text, want := range map[string]string{`{1: 2}`: "expected a key", `{"a" 1}`: "expected : after a key", `{"a": ["012345678901234567890"]}`: "longer than 20 bytes", `{"a": ]`: "expected a value"} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got the error %v, want %q", text, err, want)
		}
	}
}
