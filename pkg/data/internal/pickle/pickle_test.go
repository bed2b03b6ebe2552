package pickle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestProtocols reads what testdata/make.py wrote with Python 3.11 and NumPy
// 1.24: one batch of CIFAR's form in each protocol, and as Python 2 wrote it.
func TestProtocols(t *testing.T) {
	files, err := filepath.Glob("testdata/batch-*.pkl")
	if err != nil || len(files) != 7 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			d := read(t, file).(*Dict)
			v, ok := d.Get("data")
			a, isArray := v.(*Array)
			if !ok || !isArray || a.Kind != "u1" || a.Fortran || !slices.Equal(a.Shape, []int{2, 3}) || !slices.Equal(a.Data, []byte{0, 127, 128, 200, 254, 255}) {
				t.Errorf("data is %+v", v)
			}
			labels, _ := d.Get("labels")
			if got := fmt.Sprint(labels.(*List).Items); got != "[6 300]" {
				t.Errorf("labels are %s", got)
			}
			name, _ := d.Get("batch_label")
			if s, ok := AsText(name); !ok || s != "it's one" {
				t.Errorf("label is %v", name)
			}
		})
	}
}

// TestValues reads the kinds of values that testdata/make.py lists.
func TestValues(t *testing.T) {
	d := read(t, "testdata/values.pkl").(*Dict)
	for key, want := range map[string]string{
		"int": "-5", "big": "1099511627776", "float": "0.25", "text": "naïve ☃", "true": "true", "none": "<nil>",
		"tuple": "[1 2 3 4]", "negative": "-70000",
	} {
		if v, ok := d.Get(key); !ok || fmt.Sprint(v) != want {
			t.Errorf("%s is %v, want %s", key, v, want)
		}
	}
	// LONG1, two's complement of as many bytes as it takes (pickletools.decode_long).
	for text, want := range map[string]int64{"\x8a\x00.": 0, "\x8a\x01\x7f.": 127, "\x8a\x01\x80.": -128, "\x8a\x02\xff\x00.": 255, "\x8a\x02\x00\x80.": -32768} {
		if v, err := Read([]byte(text)); err != nil || v != want {
			t.Errorf("%q is %v, %v, want %d", text, v, err, want)
		}
	}
	number, _ := d.Get("number")
	if v, ok := AsInt(number); !ok || v != 207 {
		t.Errorf("NumPy's number is %v", number)
	}
	f, _ := d.Get("fortran")
	if a := f.(*Array); !a.Fortran || a.Kind != "f4" || !slices.Equal(a.Shape, []int{2, 2}) {
		t.Errorf("%+v", a)
	}
}

// TestRefusesCode: what names a function that is none of NumPy's is an error
// that says so. Nothing is called: the file that the commands would make is not
// there afterwards.
func TestRefusesCode(t *testing.T) {
	for name, text := range map[string]string{
		`"os.system"`:                          "cos\nsystem\n(S'touch evil'\ntR.",
		`"posix.system"`:                       "\x80\x02cposix\nsystem\nq\x00X\x0a\x00\x00\x00touch evilq\x01\x85q\x02Rq\x03.",
		`"nt.system"`:                          "\x80\x04\x8c\x02nt\x8c\x06system\x93\x8c\x0atouch evil\x85R.",
		`"builtins.eval"`:                      "\x80\x03cbuiltins\neval\n(X\x04\x00\x00\x001+1 tR.",
		`"subprocess.Popen"`:                   "(S'touch evil'\nisubprocess\nPopen\n.",
		`"numpy.load"`:                         "cnumpy\nload\n.",
		`"functools.partial"`:                  "\x80\x02cfunctools\npartial\n)\x81.",
		"calls a value that is not a function": "\x80\x02X\x01\x00\x00\x00a)R.",
		"refers to other files":                "Pfile\n.",
	} {
		_, err := Read([]byte(text))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, want %s", text, err, name)
		}
		if strings.HasPrefix(name, `"`) && !strings.Contains(err.Error(), "refused") {
			t.Errorf("%v does not say that it is refused", err)
		}
	}
	if _, err := os.Stat("evil"); err == nil {
		t.Error("a pickle's code was run")
	}
}

func TestDamaged(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "truncated at byte 0 of 0",
		"\x80\x02]q":                             "truncated at byte 3 of 4",
		"\x80\x09.":                              "protocol 9: protocols 0 to 5",
		"a.":                                     "byte 0: stack underflow",
		"PK\x03\x04":                             "refused",
		"\xff":                                   "unknown opcode 0xff",
		"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.":  "truncated at byte 0",
		"T\xff\xff\xff\x7fa.":                    "truncated",
		"h\x07.":                                 "memo index 7 was not set",
		"t.":                                     "mark",
		"(Na.":                                   "stack underflow",
		"\x8a\x09123456789.":                     "want at most 8",
		"]\x80\x02K\x01s.":                       "stack underflow",
		"I12x\n.":                                `"12x"`,
		"cnumpy\ndtype\n(X\x02\x00\x00\x00O8tR.": `type "O8"`,
		"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01(K\x07tNNNtb.": "want the state that NumPy writes",
	} {
		if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	whole, err := os.ReadFile("testdata/batch-p4.pkl")
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, err := Read(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are read", n, len(whole))
		}
	}
}

func read(t *testing.T, file string) any {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	v, err := Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// FuzzRead: any bytes give a value or an error; arrays are as long as they say.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.pkl")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("cos\nsystem\n(S'true'\ntR."))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Read(text)
		if err != nil {
			return
		}
		if d, ok := v.(*Dict); ok {
			if len(d.Keys) != len(d.Values) {
				t.Fatalf("%d keys and %d values", len(d.Keys), len(d.Values))
			}
			data, _ := d.Get("data")
			if a, ok := data.(*Array); ok && len(a.Data) > len(text) {
				t.Fatalf("an array of %d bytes from %d", len(a.Data), len(text))
			}
		}
	})
}
