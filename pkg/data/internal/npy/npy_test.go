package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func openPath(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return Open(f)
}

// TestBoxes reads every box of arrays that testdata/make.py wrote.
func TestBoxes(t *testing.T) {
	for _, name := range []string{"f4", "f8", "f2", "i2", "u1", "version2"} {
		f, err := openPath("testdata/" + name + ".npy")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.Shape(), []int{4, 5, 6, 3}) {
			t.Fatalf("shape %v", f.Shape())
		}
		for _, box := range [][2][3]int{{{0, 0, 0}, {4, 5, 6}}, {{1, 2, 3}, {2, 3, 2}}, {{3, 4, 5}, {1, 1, 1}}, {{0, 1, 0}, {3, 2, 6}}} {
			at, size := box[0], box[1]
			n := size[0] * size[1] * size[2]
			got := make([]float32, 3*n)
			if err := f.Read(got, at, size); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				c, z, y, x := i/n, i%n/(size[1]*size[2]), i/size[2]%size[1], i%size[2]
				want := (((at[0]+z)*5+at[1]+y)*6+at[2]+x)*3 + c
				if name == "u1" {
					want %= 200
				}
				if v != float32(want) {
					t.Fatalf("%s, box %v: value %d is %g, want %d", name, box, i, v, want)
				}
			}
		}
		if err := f.Read(make([]float32, 3), [3]int{4, 0, 0}, [3]int{1, 1, 1}); err == nil || !strings.Contains(err.Error(), "exceeds the array, whose shape is [4 5 6 3]") {
			t.Errorf("a box beyond the edge: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestErrors(t *testing.T) {
	text, err := os.ReadFile("testdata/f4.npy")
	if err != nil {
		t.Fatal(err)
	}
	huge := append([]byte(npySignature), 2, 0, 0xff, 0xff, 0xff, 0xff)
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"cut off":     {text[:len(text)-1], "the file is truncated: an array of shape (4, 5, 6, 3) needs 1440 bytes, but the file has 1439"},
		"header":      {text[:40], "truncated or damaged"},
		"huge header": {huge, "header of 4294967295 bytes is too large for a file of 12"},
		"version":     {append([]byte(npySignature), 9, 0, 0, 0, 0, 0), "version 9"},
		"no dict":     {bytes.Replace(text, []byte("'shape'"), []byte("'shade'"), 1), "does not contain descr, fortran_order and shape"},
		"overflow":    {bytes.Replace(text, []byte("(4, 5, 6, 3), "), []byte("(2147483647, 2147483647, 2147483647), "), 1), "is too large"},
	} {
		if _, err := New(bytes.NewReader(c.b), int64(len(c.b))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for file, want := range map[string]string{
		"fortran.npy": "numpy.ascontiguousarray", "text.npy": `type "<U1"`, "make.py": "not a .npy file",
	} {
		if _, err := openPath("testdata/" + file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
	if _, err := openPath("testdata/make.py"); !errors.Is(err, ErrNotNPY) {
		t.Error(err)
	}
}

func TestWriteHeader(t *testing.T) {
	var b bytes.Buffer
	if err := WriteHeader(&b, []int{1, 2, 2, 1}); err != nil {
		t.Fatal(err)
	}
	if b.Len()%64 != 0 {
		t.Errorf("data begin at byte %d", b.Len())
	}
	for i := range 4 {
		b.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(i))))
	}
	f, err := New(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, 4)
	if err := f.Read(got, [3]int{}, [3]int{1, 2, 2}); err != nil || !slices.Equal(got, []float32{0, 1, 2, 3}) {
		t.Errorf("%v, %v", got, err)
	}
}

// FuzzNew: any bytes give an error, or an array that they hold.
func FuzzNew(f *testing.F) {
	files, err := filepath.Glob("testdata/*.npy")
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
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := New(bytes.NewReader(text), int64(len(text)))
		if err != nil || len(file.Shape()) != 4 || slices.Min(file.Shape()) == 0 {
			return
		}
		s := file.Shape()
		if err := file.Read(make([]float32, s[0]*s[1]*s[2]*s[3]), [3]int{}, [3]int(s[:3])); err != nil {
			t.Fatal(err)
		}
	})
}
