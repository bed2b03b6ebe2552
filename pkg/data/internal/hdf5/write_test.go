package hdf5

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lastKey is the key of a chunk just beyond the edge along every axis.
func lastKey(shape, chunk []int) []byte {
	b := make([]byte, 8)
	for k, n := range chunk {
		b = appendLE(b, uint64((shape[k]+n-1)/n*n))
	}
	return b
}

// TestWrite reads back what was written: in one piece, in chunks (300 of them: a
// tree of two levels) and packed.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.h5")
	if dir := os.Getenv("LOCKSTEP_KEEP"); dir != "" { // to look at it with h5dump
		path = filepath.Join(dir, "out.h5")
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	shape := []int{3, 19, 10, 9}
	linear := func(dst []float32, at, size []int) error {
		return forEachRow(at, size, shape, func(to, from int) error {
			for i := range size[3] {
				dst[to+i] = float32(from + i)
			}
			return nil
		})
	}
	err = Write(file,
		OutputDataset{Name: "Nbody", Shape: shape, Values: linear},
		OutputDataset{Name: "Hydro", Shape: shape, Chunk: []int{1, 2, 3, 4}, Gzip: true, Values: linear},
		OutputDataset{Name: "plain", Shape: shape, Chunk: []int{2, 8, 8, 8}, Values: linear},
	)
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	f := open(t, path)
	for _, name := range []string{"Nbody", "Hydro", "plain"} {
		d, err := f.Dataset(name)
		if err != nil {
			t.Fatal(err)
		}
		if d.chunk != nil {
			// HDF5 looks for a chunk below the key behind it, in chunks: one that lies
			// within the last chunk would hide it (our own reader does not look).
			if text, err := os.ReadFile(path); err != nil || !bytes.Contains(text, lastKey(shape, d.chunk)) {
				t.Errorf("%s: the last key of its tree is not behind the last chunk (%v)", name, err)
			}
		}
		v := make([]float32, 3*19*10*9)
		if err := d.Reader().Read(v, []int{0, 0, 0, 0}, shape); err != nil {
			t.Fatal(err)
		}
		for i, x := range v {
			if x != float32(i) {
				t.Fatalf("%s: value %d is %g", name, i, x)
			}
		}
	}
	if err := Write(file); err == nil || !strings.Contains(err.Error(), "got 0 data sets, want 1 to 8") {
		t.Errorf("nothing is written: %v", err)
	}
}
