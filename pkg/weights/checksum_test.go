package weights_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"lockstep/pkg/weights"
)

// TestDamage: of a file in which any one bit is flipped, or whose tail is zeroed
// or cut off, nothing is read that was not written.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epoch-0001.safetensors")
	tensors := []weights.Tensor{
		{Name: "optimizer.m.w", Shape: []int{2, 3}, F64: []float64{1, 2, 3, 4, 5, 6}},
		{Name: "w", Shape: []int{2, 3}, F32: []float32{1, 2, 3, 4, 5, 6}},
		{Name: "step", F32: []float32{7}},
	}
	if err := weights.Write(path, tensors, map[string]string{"epoch": "3", "step": "15"}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := weights.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	read := func(what string, at int, b []byte) (noticed bool) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := weights.Read(path)
		var damaged *weights.DamagedError
		switch {
		case err == nil && !reflect.DeepEqual(got, want):
			t.Errorf("%s %d: read %v, want an error", what, at, got)
		case err != nil && (!errors.As(err, &damaged) || damaged.Path != path):
			t.Errorf("%s %d: error is %v", what, at, err)
		}
		return err != nil
	}
	unnoticed := 0
	for bit := range 8 * len(whole) {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		if !read("bit", bit, b) {
			unnoticed++
		}
	}
	// encoding/json does not tell "dtype" from "Dtype": 3 tensors × (5 + 5 + 11 letters).
	if most := 3 * (len("dtype") + len("shape") + len("dataoffsets")); unnoticed > most {
		t.Errorf("%d flipped bits change nothing, want at most %d", unnoticed, most)
	}
	for n := 1; n < len(whole); n++ {
		b := bytes.Clone(whole)
		clear(b[len(b)-n:])
		if !bytes.Equal(b, whole) && !read("zeroed tail of", n, b) {
			t.Errorf("a zeroed tail of %d bytes goes unnoticed", n)
		}
		if !read("cut tail of", n, whole[:len(whole)-n]) {
			t.Errorf("a cut tail of %d bytes goes unnoticed", n)
		}
	}
}

// TestNoChecksums: files of earlier versions and of other programs have none.
func TestNoChecksums(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(weights.Encode(f, []weights.Tensor{{Name: "w", F32: []float32{1}}}, map[string]string{"epoch": "3"}), f.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := weights.Read(path)
	if err != nil || got.Metadata["epoch"] != "3" || len(got.Tensors) != 1 {
		t.Errorf("read %v, %v", got, err)
	}
}
