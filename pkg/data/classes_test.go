package data_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// writeShapes writes pictures like CIFAR-10's in its binary version and returns
// the folder and the pictures.
func writeShapes(t *testing.T) (dir string, want *data.Classes) {
	want, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 40, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := data.WriteCIFAR10(context.Background(), dir, want, want); err != nil {
		t.Fatal(err)
	}
	return dir, want
}

// TestCIFAR10 reads what is written in both versions.
func TestCIFAR10(t *testing.T) {
	dir, want := writeShapes(t)
	for _, test := range []bool{false, true} {
		got, err := data.OpenCIFAR10(t.Context(), dir, data.CIFAROptions{Test: test})
		if err != nil {
			t.Fatal(err)
		}
		if got.Len() != want.Len() || !slices.Equal(got.ImageShape(), []int{3, 32, 32}) || !slices.Equal(got.TargetShape(), []int{1}) {
			t.Fatalf("%d pictures of %v", got.Len(), got.ImageShape())
		}
		for i := range want.Len() {
			image, class := get(t, got, i)
			wantImage, wantClass := get(t, want, i)
			if !slices.Equal(image, wantImage) || !slices.Equal(class, wantClass) || got.Class(i) != want.Class(i) {
				t.Fatalf("picture %d differs", i)
			}
		}
		if got.ClassNames()[1] != "ring" || len(got.ClassNames()) != 10 {
			t.Errorf("classes are %v", got.ClassNames())
		}
	}
	train, err := data.OpenCIFAR10(t.Context(), dir, data.CIFAROptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := train.SampleName(9); got != "data_batch_2.bin[1]" { // 40 pictures are five batches of eight
		t.Errorf("picture 9 is named %s", got)
	}
}

// TestCIFAR10Python reads testdata/cifar-10-batches-py, which make.py wrote with
// NumPy in the form of the original: two batches of three pictures of 3072
// bytes, value (31·i + k) mod 256 at k of picture i, and labels 3i mod 10.
func TestCIFAR10Python(t *testing.T) {
	c, err := data.OpenCIFAR10(t.Context(), "testdata", data.CIFAROptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Len() != 6 || c.ClassNames()[9] != "truck" {
		t.Fatalf("%d pictures, classes %v", c.Len(), c.ClassNames())
	}
	for i := range 6 {
		image, class := get(t, c, i)
		if class[0] != float32(3*i%10) {
			t.Errorf("picture %d is of class %g", i, class[0])
		}
		for k, v := range image {
			if v != float32((31*i+k)%256)/255 {
				t.Fatalf("picture %d: value %d is %g", i, k, v)
			}
		}
	}
}

func TestCIFAR10Errors(t *testing.T) {
	dir, _ := writeShapes(t)
	second := filepath.Join(dir, "cifar-10-batches-bin", "data_batch_2.bin")
	whole, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	wrong := slices.Clone(whole)
	wrong[2*3073] = 10
	for _, c := range []struct {
		name string
		text []byte
		want string
	}{
		{"cut off", whole[:3073*3+100], second + ": file is truncated: picture 3, which begins at byte 9219, has 100 of 3073 bytes: copy or download it again"},
		{"cut off between pictures", whole[:3073*3], second + ": got 3 pictures, but " + filepath.Join(dir, "cifar-10-batches-bin", "data_batch_1.bin") + " has 8"},
		{"empty", nil, second + ": the file is empty"},
		{"another file", wrong, "byte 6146, the class of picture 2, is 10, want 0 to 9"},
	} {
		write(t, second, c.text)
		if _, err := data.OpenCIFAR10(t.Context(), dir, data.CIFAROptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for name, want := range map[string]string{
		filepath.Join(dir, "none"): "folder " + filepath.Join(dir, "none") + " does not exist", t.TempDir(): "contains no batches: want data_batch_1.bin", second: "is a file, not a folder: unpack it",
	} {
		if _, err := data.OpenCIFAR10(t.Context(), name, data.CIFAROptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// The Python version with a label beyond the classes in place of its 9.
	python := readFile(t, "testdata/cifar-10-batches-py/data_batch_2")
	for label, want := range map[string]string{"K\x0a": "is 10, want 0 to 9", "J\xff\xff\xff\xff": "is -1, want 0 to 9"} {
		other := t.TempDir()
		write(t, filepath.Join(other, "data_batch_1"), bytes.Replace(python, []byte("K\x09"), []byte(label), 1))
		if _, err := data.OpenCIFAR10(t.Context(), other, data.CIFAROptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("label %q: %v, want %q", label, err, want)
		}
	}
	// The Python version: code is refused, and not run.
	py := filepath.Join(t.TempDir(), "cifar-10-batches-py")
	evil := filepath.Join(t.TempDir(), "evil")
	for text, want := range map[string]string{
		"cos\nsystem\n(S'touch " + evil + "'\ntR.": `data_batch_1: read pickle: byte 0: refused Python function "os.system"`,
		"(lp0\n.":                     "pickle is not a dict with data and labels",
		"}(U\x04dataK\x01u.":          "data is not an array [N,3072] of bytes",
		"\x80\x02}(U\x04dataU\xffabc": "truncated at byte",
	} {
		write(t, filepath.Join(py, "data_batch_1"), []byte(text))
		if _, err := data.OpenCIFAR10(t.Context(), py, data.CIFAROptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := os.Stat(evil); err == nil {
		t.Error("the pickle's code was run")
	}
}

func write(t *testing.T, path string, text []byte) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o666); err != nil {
		t.Fatal(err)
	}
}

// flat is a picture of one colour.
func flat(height, width int, c color.Color) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for i := range height * width {
		m.Set(i%width, i/width, c)
	}
	return m
}

// writeClasses writes red cats and blue dogs, one of them as JPEG.
func writeClasses(t *testing.T, dir string) {
	red, blue := color.NRGBA{255, 0, 0, 255}, color.NRGBA{0, 0, 255, 255}
	encode(t, filepath.Join(dir, "dog", "2.png"), png.Encode, flat(4, 6, blue))
	encode(t, filepath.Join(dir, "cat", "10.png"), png.Encode, flat(4, 6, red))
	encode(t, filepath.Join(dir, "cat", "9.jpeg"), func(w io.Writer, m image.Image) error { return jpeg.Encode(w, m, &jpeg.Options{Quality: 100}) }, flat(4, 6, red))
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	writeClasses(t, dir)
	for _, resize := range []int{0, 5} {
		c, err := data.OpenFolders(t.Context(), dir, data.ClassOptions{Resize: resize})
		if err != nil {
			t.Fatal(err)
		}
		want := []int{3, 4, 6}
		if resize > 0 {
			want = []int{3, 5, 5}
		}
		if c.Len() != 3 || !slices.Equal(c.ImageShape(), want) || !slices.Equal(c.ClassNames(), []string{"cat", "dog"}) {
			t.Fatalf("%d pictures of %v, classes %v", c.Len(), c.ImageShape(), c.ClassNames())
		}
		for i, name := range []string{"cat/9.jpeg", "cat/10.png", "dog/2.png"} {
			image, class := get(t, c, i)
			if c.SampleName(i) != filepath.FromSlash(name) || class[0] != float32(i/2) {
				t.Errorf("picture %d is %s of class %g", i, c.SampleName(i), class[0])
			}
			n := len(image) / 3
			for k, v := range image {
				full := float32(0)
				if plane := 2 * (i / 2); k/n == plane { // red of cats, blue of dogs
					full = 1
				}
				if v < full-0.01 || v > full+0.01 { // JPEG rounds
					t.Fatalf("%s: value %d is %g, want %g", name, k, v, full)
				}
			}
		}
	}
	encode(t, filepath.Join(dir, "dog", "3.png"), png.Encode, flat(7, 6, color.White))
	c, err := data.OpenFolders(t.Context(), dir, data.ClassOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(3, make([]float32, 72), make([]float32, 1)); err == nil || !strings.Contains(err.Error(), "3.png has size 7×6, but the first picture has 4×6 (height×width): set resize") {
		t.Errorf("another size: %v", err)
	}
	write(t, filepath.Join(dir, "dog", "3.png"), []byte("\x89PNG\r\n\x1a\nno"))
	if err := c.Get(3, make([]float32, 72), make([]float32, 1)); err == nil || !strings.Contains(err.Error(), "not a valid PNG") {
		t.Errorf("a damaged file: %v", err)
	}
	empty := t.TempDir()
	for want, dir := range map[string]string{"does not exist": filepath.Join(empty, "none"), "contains 0 folders: want one subfolder per class": empty} {
		if _, err := data.OpenFolders(t.Context(), dir, data.ClassOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := data.OpenFolders(t.Context(), dir, data.ClassOptions{Resize: -1}); err == nil || !strings.Contains(err.Error(), "resize is -1") {
		t.Error(err)
	}
}

// TestResize: a ramp keeps being one when it is enlarged: with pixels' centres at
// half, bilinear interpolation of 0, 85, 170, 255 at 8 places is 0, 21, 64, …
// (TensorFlow's tf.image.resize and Pillow's resize of that row give the same).
func TestResize(t *testing.T) {
	dir := t.TempDir()
	m := image.NewGray(image.Rect(0, 0, 4, 4))
	for i := range m.Pix {
		m.Pix[i] = uint8(85 * (i % 4))
	}
	encode(t, filepath.Join(dir, "a", "1.png"), png.Encode, m)
	encode(t, filepath.Join(dir, "b", "1.png"), png.Encode, m)
	c, err := data.OpenFolders(t.Context(), dir, data.ClassOptions{Resize: 8})
	if err != nil {
		t.Fatal(err)
	}
	image, _ := get(t, c, 0)
	for x, want := range []float32{0, 21.25, 63.75, 106.25, 148.75, 191.25, 233.75, 255} {
		if got := image[3*8+x] * 255; got < want-1 || got > want+1 { // rounded to whole numbers
			t.Errorf("column %d is %g, want %g", x, got, want)
		}
	}
}

func TestImageNet(t *testing.T) {
	dir := t.TempDir()
	writeClasses(t, dir)
	pickled := filepath.Join(dir, "train_data.pkl")
	// pickle.dumps({'dog/2.png': 1, 'cat/9.jpeg': 0}, protocol=0), and with names.
	numbers := "(dp0\nVdog/2.png\np1\nI1\nsVcat/9.jpeg\np2\nI0\ns."
	names := "(dp0\nVdog/2.png\np1\nVn02\np2\nsVcat/9.jpeg\np3\nVn01\np4\ns."
	for text, want := range map[string]string{numbers: "[0 1]", names: "[n01 n02]"} {
		write(t, pickled, []byte(text))
		c, err := data.OpenImageNet(t.Context(), dir, data.ClassOptions{Resize: 8})
		if err != nil {
			t.Fatal(err)
		}
		_, class := get(t, c, 0)
		if c.Len() != 2 || c.SampleName(0) != "dog/2.png" || class[0] != 1 || fmt.Sprint(c.ClassNames()) != want {
			t.Errorf("%d pictures, %s of class %g, classes %v", c.Len(), c.SampleName(0), class[0], c.ClassNames())
		}
	}
	for text, want := range map[string]string{
		"cposix\nsystem\n(S'true'\ntR.":     `refused Python function "posix.system"`,
		"(dp0\nVnone.png\np1\nI1\ns.":       "none.png",
		"(dp0\nVdog/2.png\np1\nI-1\ns.":     "class of picture dog/2.png is -1",
		"(lp0\n.":                           "the file is not a pickled dict from paths to classes",
		"(dp0\nI5\nI1\ns.":                  "key 0 is 5, want the path of a picture",
		"(dp0\nVa\np1\nVx\nsVb\np2\nI1\ns.": "class of picture b is 1, want a name",
	} {
		write(t, pickled, []byte(text))
		if _, err := data.OpenImageNet(t.Context(), dir, data.ClassOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := data.OpenImageNet(t.Context(), t.TempDir(), data.ClassOptions{}); err == nil || !strings.Contains(err.Error(), "want a pickled dict from the path of each picture to its class") {
		t.Error(err)
	}
}

// TestShapes: the same pictures whatever their number; classes in turns; no
// class has a colour of its own.
func TestShapes(t *testing.T) {
	a, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 400, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	b, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 30, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Len() {
		x, _ := get(t, a, i)
		y, _ := get(t, b, i)
		if !slices.Equal(x, y) {
			t.Fatalf("picture %d depends on how many there are", i)
		}
	}
	means := make([]float64, 10)
	for i := range a.Len() {
		image, class := get(t, a, i)
		if int(class[0]) != i%10 {
			t.Fatalf("picture %d is of class %g", i, class[0])
		}
		for _, v := range image {
			means[i%10] += float64(v) / float64(len(image)) / 40
		}
	}
	if slices.Max(means)-slices.Min(means) > 0.15 { // of 40 pictures with means of ±0.13
		t.Errorf("classes differ in brightness: %.2f", means)
	}
	for _, c := range []data.ShapesOptions{{}, {Count: 1, Classes: 11}, {Count: 1, Edge: 4}} {
		if _, err := data.Shapes(t.Context(), c); err == nil {
			t.Errorf("%+v is made", c)
		}
	}
}

// TestLabelsStay: augmentation turns the picture and leaves the class.
func TestLabelsStay(t *testing.T) {
	ds, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 20, Edge: 12})
	if err != nil {
		t.Fatal(err)
	}
	l := loader(t, ds, data.SamplerOptions{World: 1, BatchPerWorker: 20}, data.LoaderOptions{Augment: data.Augment{Flip: true, Rotate: true, Crop: 8, Brightness: 0.3, Contrast: 0.3}, Seed: 1})
	defer l.Close()
	if !slices.Equal(l.ImageShape(), []int{3, 8, 8}) || !slices.Equal(l.TargetShape(), []int{1}) {
		t.Fatalf("%v, %v", l.ImageShape(), l.TargetShape())
	}
	b := read(t, l, 0)[0]
	for k, i := range b.Indices {
		if b.Target[k] != float32(i%10) {
			t.Errorf("picture %d is of class %g", i, b.Target[k])
		}
	}
	if slices.Min(b.Image) < 0 || slices.Max(b.Image) > 1 {
		t.Error("jitter leaves 0 to 1")
	}
}
