package hdf5

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// value is what testdata/make.py wrote at a place in row-major order.
func value(name string, from int) float32 {
	v := float32(from % 1000)
	switch name {
	case "types/i4":
		v -= 500
	case "sparse":
		if c, z, y, x := from/504, from/72%7, from/9%8, from%9; c > 2 || z > 2 || y > 4 || x > 3 {
			return -1
		}
	}
	return v
}

// TestBoxes reads random boxes of every layout, filter and type in files that
// h5py 3.7 (HDF5 1.10.8) wrote in its oldest and newest form.
func TestBoxes(t *testing.T) {
	for _, form := range []string{"earliest", "latest"} {
		f := open(t, "testdata/"+form+".h5")
		for _, name := range []string{"contiguous", "chunked", "gzip", "lzf", "whole", "types/f2", "types/f8", "types/i4", "types/u2", "sparse"} {
			t.Run(form+"/"+name, func(t *testing.T) {
				d, err := f.Dataset(name)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(d.Shape(), []int{3, 7, 8, 9}) {
					t.Fatalf("shape %v", d.Shape())
				}
				r, random := d.Reader(), rand.New(rand.NewPCG(1, 2))
				for range 60 {
					at, size := make([]int, 4), make([]int, 4)
					n := 1
					for k, s := range d.Shape() {
						at[k] = random.IntN(s)
						size[k] = 1 + random.IntN(s-at[k])
						n *= size[k]
					}
					got := make([]float32, n)
					if err := r.Read(got, at, size); err != nil {
						t.Fatal(err)
					}
					for i, v := range got {
						x := i % size[3]
						y := i / size[3] % size[2]
						z := i / (size[3] * size[2]) % size[1]
						c := i / (size[3] * size[2] * size[1])
						from := ((at[0]+c)*7+at[1]+z)*72 + (at[2]+y)*9 + at[3] + x
						if want := value(name, from); v != want {
							t.Fatalf("box %v at %v: value %d is %g, want %g", size, at, i, v, want)
						}
					}
				}
			})
		}
	}
}

// TestManyChunks: 1800 chunks need a B-tree of two levels and, in the newer
// form, a fixed array of two pages.
func TestManyChunks(t *testing.T) {
	for _, form := range []string{"earliest", "latest"} {
		f := open(t, "testdata/many-"+form+".h5")
		d, err := f.Dataset("many")
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 3600)
		if err := d.Reader().Read(got, []int{0, 0}, []int{60, 60}); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if v != float32(i) {
				t.Fatalf("%s: value %d is %g", form, i, v)
			}
		}
	}
}

// TestRareForms: addresses behind a block of the user's, a chunk whose filter was
// left out, and pages of chunks that were never written.
func TestRareForms(t *testing.T) {
	d, err := open(t, "testdata/userblock.h5").Dataset("masked")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, 8)
	if err := d.Reader().Read(got, []int{0, 0}, []int{2, 4}); err != nil || !slices.Equal(got, []float32{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("%v, %v", got, err)
	}
	if d, err = open(t, "testdata/pages.h5").Dataset("pages"); err != nil {
		t.Fatal(err)
	}
	got = make([]float32, 3600)
	if err := d.Reader().Read(got, []int{0, 0}, []int{60, 60}); err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		want := float32(-1)
		if i >= 59*60 {
			want = float32(i)
		}
		if v != want {
			t.Fatalf("value %d is %g, want %g", i, v, want)
		}
	}
}

// counting counts the bytes that are read.
type counting struct {
	r io.ReaderAt
	n atomic.Int64
}

func (c *counting) ReadAt(b []byte, at int64) (int, error) {
	c.n.Add(int64(len(b)))
	return c.r.ReadAt(b, at)
}

// TestReadsOnlyTheBox: a box of 2×2×2×2 values reads its chunks' rows, or the
// chunks that it touches, and no more of the file.
func TestReadsOnlyTheBox(t *testing.T) {
	text, err := os.ReadFile("testdata/earliest.h5")
	if err != nil {
		t.Fatal(err)
	}
	for name, most := range map[string]int64{
		"contiguous": 2 * 2 * (9 + 2) * 4, // two rows of a plane with what lies between them
		"chunked":    2 * 3 * 5 * 4 * 4,   // all in one chunk
		"gzip":       2 * 3 * 5 * 4 * 8,   // one chunk of 2×3×5×4, at most as large as it is unpacked
	} {
		c := &counting{r: bytes.NewReader(text)}
		f, err := New(c, int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		d, err := f.Dataset(name)
		if err != nil {
			t.Fatal(err)
		}
		c.n.Store(0)
		if err := d.Reader().Read(make([]float32, 16), []int{0, 0, 0, 0}, []int{2, 2, 2, 2}); err != nil {
			t.Fatal(err)
		}
		if n := c.n.Load(); n > most || n == 0 {
			t.Errorf("%s: %d bytes are read, at most %d are needed", name, n, most)
		}
	}
}

func TestErrors(t *testing.T) {
	f := open(t, "testdata/earliest.h5")
	for name, want := range map[string]string{
		"Nbody":      "Nbody does not exist; its group contains: chunked, contiguous, gzip",
		"types/none": "none does not exist; its group contains: f2, f8, i4, u2",
		"types":      "the object is not a data set",
		"text":       "integers of 1, 2, 4 or 8 bytes and floats of 2, 4 or 8 bytes are supported",
	} {
		if _, err := f.Dataset(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	d, err := f.Dataset("contiguous")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Reader().Read(make([]float32, 81), []int{0, 0, 0, 1}, []int{1, 1, 9, 9}); err == nil || !strings.Contains(err.Error(), "exceeds the data, whose shape is [3 7 8 9]") {
		t.Errorf("a box beyond the edge: %v", err)
	}
	for file, sets := range map[string]map[string]string{
		"odd": {
			"soft":    "soft is a soft or external link, which is not followed: name the data set itself",
			"outside": "values in other files (external storage) are not supported: copy the file with h5repack",
			"twelve":  "integers of 12 bits in 2 bytes: integers must fill their bytes; convert them",
		},
		"odd-latest": {
			"soft":      "soft is a soft or external link",
			"elsewhere": "elsewhere is a soft or external link",
		},
	} {
		f := open(t, "testdata/"+file+".h5")
		for name, want := range sets {
			if _, err := f.Dataset(name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: %v, want %q", file, name, err, want)
			}
		}
	}
	grows := open(t, "testdata/grows.h5")
	if _, err := grows.Dataset("grows"); err == nil || !strings.Contains(err.Error(), "chunk indexes of resizable data sets") {
		t.Errorf("an extensible array: %v", err)
	}
	if _, err := openPath("testdata/make.py"); !errors.Is(err, ErrNotHDF5) || !strings.Contains(err.Error(), "open testdata/make.py: not an HDF5 file") {
		t.Errorf("another file: %v", err)
	}
}

// TestCutOff: a file that is cut off anywhere gives an error, or what it still has.
func TestCutOff(t *testing.T) {
	for _, form := range []string{"earliest", "latest"} {
		text, err := os.ReadFile("testdata/" + form + ".h5")
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for n := 0; n < len(text); n += 97 {
			if err := readAll(text[:n]); err != nil && strings.Contains(err.Error(), "truncated") {
				said = err.Error()
			}
		}
		if said == "" {
			t.Errorf("%s: no error says that the file is truncated", form)
		}
		if err := readAll(text[:len(text)/2]); err == nil {
			t.Errorf("%s: half a file is read", form)
		}
	}
}

// TestDamagedChunk: fletcher32 finds a byte that changed.
func TestDamagedChunk(t *testing.T) {
	text, err := os.ReadFile("testdata/earliest.h5")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Dataset("gzip")
	if err != nil {
		t.Fatal(err)
	}
	text[d.chunks[0].pos+d.chunks[0].size/2] ^= 1
	err = d.Reader().Read(make([]float32, 1), []int{0, 0, 0, 0}, []int{1, 1, 1, 1})
	if err == nil || !strings.Contains(err.Error(), "wrong fletcher32 checksum") {
		t.Errorf("a changed byte: %v", err)
	}
}

// readAll reads every numeric data set of a file.
func readAll(text []byte) error {
	f, err := New(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return err
	}
	names, err := f.RootLinkNames()
	if err != nil {
		return err
	}
	var all error
	for _, name := range names {
		d, err := f.Dataset(name)
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		n := 1
		for _, v := range d.Shape() {
			if n *= v; n > 1<<16 || n == 0 {
				break
			}
		}
		if n > 1<<16 || n == 0 {
			continue
		}
		err = d.Reader().Read(make([]float32, n), make([]int, len(d.Shape())), d.Shape())
		all = errors.Join(all, err)
	}
	return all
}

func openPath(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return Open(f)
}

func open(t *testing.T, path string) *File {
	f, err := openPath(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// FuzzRead: any bytes give values or an error, with no more memory than they
// can fill.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.h5")
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
	f.Add([]byte(hdf5Signature))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) < 1<<17 {
			_ = readAll(text)
		}
	})
}
