package weights_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/weights"
)

func Example() {
	dir, err := os.MkdirTemp("", "weights")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "epoch-1.safetensors")

	err = weights.Write(path, []weights.Tensor{
		{Name: "head.weight", Shape: []int{1, 2}, F32: []float32{0.5, -1}},
		{Name: "optimizer.m.head.weight", Shape: []int{1, 2}, F64: []float64{0.25, 0}},
	}, map[string]string{"epoch": "1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := weights.Read(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range f.Tensors {
		fmt.Println(t.Name, t.DType(), t.Shape, t.Float64s())
	}
	fmt.Println("epoch", f.Metadata["epoch"])
	_, err = f.Tensor("bridge.weight")
	fmt.Println(err)
	// Output:
	// optimizer.m.head.weight F64 [1 2] [0.25 0]
	// head.weight F32 [1 2] [0.5 -1]
	// epoch 1
	// unknown tensor bridge.weight: the file has 2 tensors, none with this name
}

// file puts a header and data together as the specification says.
func file(header, data string) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

// TestEncodeBytes compares with a file written by hand from the specification:
// 1 is 3f800000 in float32 and 3ff0000000000000 in float64 (IEEE 754).
func TestEncodeBytes(t *testing.T) {
	var b bytes.Buffer
	err := weights.Encode(&b, []weights.Tensor{
		{Name: "a", Shape: []int{1, 1}, F32: []float32{1}},
		{Name: "b", F64: []float64{1}},
	}, map[string]string{"k": "v"})
	if err != nil {
		t.Fatal(err)
	}
	header := `{"__metadata__":{"k":"v"},"b":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]}}`
	header += strings.Repeat(" ", 7-(len(header)+7)%8)
	want := file(header, "\x00\x00\x00\x00\x00\x00\xf0\x3f"+"\x00\x00\x80\x3f")
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("got  %q\nwant %q", b.Bytes(), want)
	}
	if n := binary.LittleEndian.Uint64(b.Bytes()); n%8 != 0 {
		t.Errorf("header has %d bytes: the data is not aligned to 8", n)
	}
}

// TestRoundTrip writes any bits, NaNs and negative zeros too, and reads them back.
func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z.é"<]{1,8}`), 0, 5, rapid.ID).Draw(t, "names")
		var tensors []weights.Tensor
		for _, name := range names {
			shape := rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(t, "shape")
			n := 1
			for _, d := range shape {
				n *= d
			}
			x := weights.Tensor{Name: name, Shape: shape}
			if rapid.Bool().Draw(t, "f64") {
				x.F64 = make([]float64, n)
				for i := range x.F64 {
					x.F64[i] = math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
				}
			} else {
				x.F32 = make([]float32, n)
				for i := range x.F32 {
					x.F32[i] = math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
				}
			}
			tensors = append(tensors, x)
		}
		metadata := rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, "metadata")
		if err := weights.Write(path, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		f, err := weights.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Tensors) != len(tensors) || len(f.Metadata) != len(metadata) {
			t.Fatalf("read %d tensors and %d metadata, wrote %d and %d", len(f.Tensors), len(f.Metadata), len(tensors), len(metadata))
		}
		for k, v := range metadata {
			if f.Metadata[k] != v {
				t.Fatalf("metadata %q is %q, want %q", k, f.Metadata[k], v)
			}
		}
		for _, want := range tensors {
			got, err := f.Tensor(want.Name)
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got.Shape) != fmt.Sprint(want.Shape) || got.DType() != want.DType() || got.Len() != want.Len() {
				t.Fatalf("read %s %v %s, wrote %v %s", got.Name, got.Shape, got.DType(), want.Shape, want.DType())
			}
			for i := range want.F32 {
				if math.Float32bits(got.F32[i]) != math.Float32bits(want.F32[i]) {
					t.Fatalf("%s[%d] is %x, want %x", want.Name, i, got.F32[i], want.F32[i])
				}
			}
			for i := range want.F64 {
				if math.Float64bits(got.F64[i]) != math.Float64bits(want.F64[i]) {
					t.Fatalf("%s[%d] is %x, want %x", want.Name, i, got.F64[i], want.F64[i])
				}
			}
		}
	})
}

// TestReadLargerThanBuffer covers values that do not fit one chunk of the writer.
func TestReadLargerThanBuffer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	v := make([]float32, 50_001)
	for i := range v {
		v[i] = float32(i)
	}
	if err := weights.Write(path, []weights.Tensor{{Name: "v", Shape: []int{len(v)}, F32: v}}, nil); err != nil {
		t.Fatal(err)
	}
	f, err := weights.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range f.Tensors[0].F32 {
		if x != float32(i) {
			t.Fatalf("value %d is %g", i, x)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	one := `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "file has 0 bytes"},
		{"cut in the length", []byte{1, 2, 3}, "file has 3 bytes"},
		{"length beyond the file", binary.LittleEndian.AppendUint64(nil, math.MaxUint64), "header length is 18446744073709551615"},
		{"cut in the header", file(one, "1234")[:20], "the file is truncated"},
		{"no header", file("", ""), "does not start with {"},
		{"another format", file("hello", ""), "does not start with {"},
		{"broken JSON", file("{]", ""), "read header"},
		{"open JSON", file(`{"a":`, ""), "read header"},
		{"cut in the data", file(one, "12"), "outside of the 2 bytes"},
		{"bytes left over", file(one, "12345"), "end at byte 4, but there are 5"},
		{"negative offset", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`, ""), "outside of the 0 bytes"},
		{"reversed offsets", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, "1234"), "outside of the 4 bytes"},
		{"one offset", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}}`, "1234"), "two data_offsets"},
		{"no shape", file(`{"a":{"dtype":"F32","data_offsets":[0,4]}}`, "1234"), "needs dtype, shape"},
		{"shape against bytes", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, "1234"), "shape [2] of F32 needs 8 bytes, but data_offsets span 4"},
		{"negative shape", file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, "1234"), "negative dimension"},
		{"shape that overflows", file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, ""), "too large"},
		{"eight bits", file(`{"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}`, "12"), `unsupported dtype "F8_E4M3": use one of BF16, BOOL, F16`},
		{"header of 2^60 bytes", append(binary.LittleEndian.AppendUint64(nil, 1<<60), "{}"...), "header length is 1152921504606846976, but only 2 bytes follow it: the file is truncated or not in safetensors format"},
		{"header a byte longer than the file", append(binary.LittleEndian.AppendUint64(nil, 3), "{}"...), "header length is 3, but only 2 bytes follow it"},
		{"header longer than any", append(binary.LittleEndian.AppendUint64(nil, 100_000_001), "{}"...), "header length is 100000001"},
		{"a whole number beyond float64", file(`{"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}`, "\x01\x00\x00\x00\x00\x00\x20\x00"), "tensor a: I64 value at index 0 cannot be represented exactly as float64"},
		{"an unsigned one", file(`{"a":{"dtype":"U64","shape":[],"data_offsets":[0,8]}}`, "\x01\x00\x00\x00\x00\x00\x20\x00"), "tensor a: U64 value at index 0 cannot be represented exactly as float64"},
		{"unknown field", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}`, "1234"), "unknown field"},
		{"metadata no string", file(`{"__metadata__":{"k":1}}`, ""), "__metadata__"},
		{"name twice", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, "12345678"), "duplicate name a"},
		{"overlap", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, "1234"), "tensor b starts at byte 0 of the data, but the previous tensor ends at byte 4"},
		{"gap", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, "12345678"), "tensor a starts at byte 4"},
		{"text after the brace", file(`{} x`, ""), "follow the closing brace"},
	} {
		f, err := weights.Decode(c.b)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v, want an error with %q", c.name, f, err, c.want)
		}
	}
}

// TestDecodeFormats reads the data types that other programs write and we do
// not. The bytes are those of IEEE 754's binary16 (sign, 5, 10 bits) and the upper
// half of binary32.
func TestDecodeFormats(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		dtype, data string
		as          string
		want        []float64
	}{
		// 1, −2, the largest 65504, the smallest 2^−24, 2^−14 − 2^−24, −0, ∞, NaN
		{"F16", "\x00\x3c\x00\xc0\xff\x7b\x01\x00\xff\x03\x00\x80\x00\x7c\x01\x7e", "F32", []float64{1, -2, 65504, 0x1p-24, 0x1p-14 - 0x1p-24, math.Copysign(0, -1), math.Inf(1), nan}},
		{"BF16", "\x80\x3f\x49\x40\x80\xff", "F32", []float64{1, 3.140625, math.Inf(-1)}},
		{"I64", "\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x20\x00", "F64", []float64{-1, 1 << 53}},
		{"I32", "\xfe\xff\xff\xff", "F64", []float64{-2}},
		{"I16", "\x00\x80", "F64", []float64{-32768}},
		{"I8", "\x80", "F64", []float64{-128}},
		{"U8", "\xff", "F64", []float64{255}},
		{"BOOL", "\x00\x01", "F64", []float64{0, 1}},
	} {
		n, width := len(c.want), len(c.data)
		f, err := weights.Decode(file(fmt.Sprintf(`{"a":{"dtype":%q,"shape":[%d],"data_offsets":[0,%d]}}`, c.dtype, n, width), c.data))
		if err != nil {
			t.Errorf("%s: %v", c.dtype, err)
			continue
		}
		got := f.Tensors[0]
		if got.DType() != c.as {
			t.Errorf("%s is read as %s, want %s", c.dtype, got.DType(), c.as)
		}
		for i, v := range got.Float64s() {
			if math.Float64bits(v) != math.Float64bits(c.want[i]) && !(math.IsNaN(v) && math.IsNaN(c.want[i])) {
				t.Errorf("%s: value %d is %g, want %g", c.dtype, i, v, c.want[i])
			}
		}
	}
}

// TestWriteKeepsOldFile: a write that fails leaves what was there, and nothing else.
func TestWriteKeepsOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "w.safetensors")
	good := []weights.Tensor{{Name: "a", Shape: []int{1}, F32: []float32{7}}}
	if err := weights.Write(path, good, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tensors []weights.Tensor
		want    string
	}{
		{[]weights.Tensor{{Name: "a", Shape: []int{2}, F32: []float32{1}}}, "tensor a has 1 values, but shape [2] needs 2"},
		{append(good, good...), "duplicate tensor name a"},
		{[]weights.Tensor{{Name: "a", F32: []float32{1}, F64: []float64{1}}}, "both F32 and F64"},
		{[]weights.Tensor{{Name: "__metadata__", F32: []float32{1}}}, "invalid tensor name"},
		{[]weights.Tensor{{Name: "\xff", F32: []float32{1}}}, "not UTF-8"},
	} {
		err := weights.Write(path, c.tensors, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v, want an error with %q and the path", err, c.want)
		}
	}
	f, err := weights.Read(path)
	if err != nil || f.Tensors[0].F32[0] != 7 {
		t.Errorf("the old file was lost: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, want the file alone", entries)
	}
	if err := weights.Write(filepath.Join(dir, "none", "w"), good, nil); err == nil {
		t.Error("writing into a folder that is not there succeeded")
	}
	if _, err := weights.Read(filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "read weights") {
		t.Errorf("reading a file that is not there: %v", err)
	}
}

func TestFromFloat64s(t *testing.T) {
	x, err := weights.FromFloat64s("a", []int{2}, []float64{0.5, math.Inf(1)}, true)
	if err != nil || x.DType() != "F32" || x.F32[0] != 0.5 {
		t.Errorf("got %v, %v", x, err)
	}
	// 0.1 has no exact float32.
	if _, err := weights.FromFloat64s("a", []int{1}, []float64{0.1}, true); err == nil || !strings.Contains(err.Error(), "store it as F64") {
		t.Errorf("got %v, want an error", err)
	}
	if x, err := weights.FromFloat64s("a", []int{0}, nil, false); err != nil || x.DType() != "F64" {
		t.Errorf("got %v, %v", x, err)
	}
}

// FuzzDecode: any bytes give an error or a file that writes and reads back the same.
func FuzzDecode(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, "1234"))
	f.Add(file(`{"__metadata__":{"k":"v"},"b":{"dtype":"F64","shape":[],"data_offsets":[0,8]}}  `, "12345678"))
	f.Add(file(`{"a":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}}`, ""))
	f.Add(file(`{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"n":{"dtype":"I64","shape":[],"data_offsets":[4,12]}}`, "123412345678"))
	f.Add(append(binary.LittleEndian.AppendUint64(nil, 1<<60), "{}"...))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := weights.Decode(b)
		if err != nil {
			return
		}
		for _, x := range first.Tensors {
			if x.Name == "" {
				return // readable, but not written by us
			}
		}
		var out bytes.Buffer
		if err := weights.Encode(&out, first.Tensors, first.Metadata); err != nil {
			t.Fatalf("write what was read: %v", err)
		}
		second, err := weights.Decode(out.Bytes())
		if err != nil {
			t.Fatalf("read what was written: %v", err)
		}
		if len(second.Tensors) != len(first.Tensors) {
			t.Fatalf("%d tensors became %d", len(first.Tensors), len(second.Tensors))
		}
	})
}
