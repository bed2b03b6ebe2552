package predict

import (
	"encoding/binary"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
	"lockstep/pkg/model"
	"lockstep/pkg/train"
	"lockstep/pkg/weights"
)

// classifier changes a config to one that learns to classify 24×24 pictures with the given network.
func classifier(kind, stem string, blocks ...int) func(*train.Config) {
	return func(c *train.Config) {
		c.Model = model.Config{Kind: kind, Base: 4, Blocks: blocks, Classes: 3, Stem: stem}
		c.Data = data.Config{Kind: data.KindShapes, Count: 12, Classes: 3, Edge: 24, TestImages: 3}
	}
}

// TestExport: the files have what was scored or averaged, and the numbers of the network.
func TestExport(t *testing.T) {
	run := trainRun(t, func(c *train.Config) { c.EMA.Decay = 0.9 })
	out := filepath.Join(t.TempDir(), "exported")
	export := func(averages bool) *weights.File {
		t.Helper()
		e, err := Export(t.Context(), run, out, ExportOptions{To: "pytorch", Averages: averages})
		if err != nil {
			t.Fatal(err)
		}
		if about := strings.Join(e.About, "\n"); !strings.Contains(about, "unet2d-4x2") || strings.Contains(about, "IoU 0.") == averages {
			t.Errorf("averages %t: the scores are those of the trained parameters, got\n%s", averages, about)
		}
		f, err := weights.Read(e.Files[1])
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	checkpoint, err := weights.Read(filepath.Join(run, "checkpoints", "epoch-0001.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	averaged := export(true)
	trained := export(false)
	for i, w := range trained.Tensors {
		want, err := checkpoint.Tensor(w.Name)
		if err != nil || !slices.Equal(w.F32, want.F32) || strings.HasPrefix(w.Name, "optimizer.") || strings.HasPrefix(w.Name, "ema.") {
			t.Errorf("%s is not the checkpoint's (%v)", w.Name, err)
		}
		if parameter := !strings.Contains(w.Name, "running"); slices.Equal(w.F32, averaged.Tensors[i].F32) == parameter {
			t.Errorf("%s, a parameter: %t, differs from its average: %t", w.Name, parameter, !parameter)
		}
	}
	text, err := os.ReadFile(filepath.Join(out, "model.py"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nSTEP = 4 ", "\nHALO = 24 ", // TestWindowsEqualWholeImage has the field
		"\nBACKGROUND, FOREGROUND = 0, 255 ",
		"return UNet2D(inputs=1, outputs=1, base=4, depth=2, batch_norm=True, bias=False)\n",
		"checkpoint  checkpoints/epoch-0001.safetensors, after epoch 1; trained parameters\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("model.py lacks %q", want)
		}
	}
	if _, err := Export(t.Context(), trainRun(t, nil), out, ExportOptions{To: "pytorch", Averages: true}); err == nil || !strings.Contains(err.Error(), "has no averaged parameters: use a run with ema.decay") {
		t.Errorf("got error %v without averages", err)
	}
	if _, err := Export(t.Context(), run, run, ExportOptions{To: "jax"}); err == nil || !strings.Contains(err.Error(), `unknown format "jax": use pytorch or onnx`) {
		t.Errorf("got error %v", err)
	}
	if _, err := Export(t.Context(), run, filepath.Join(out, "model.py"), ExportOptions{To: "pytorch"}); err == nil || !strings.Contains(err.Error(), "is a file: choose a folder") {
		t.Errorf("got error %v for a file as folder", err)
	}
}

// pythonTest runs the module in each folder on the files in its folder images. It writes the image
// and its logits, as float32, beside each file.
const pythonTest = `
import importlib.util, pathlib, sys
import torch
torch.set_num_threads(1)
for folder in map(pathlib.Path, sys.argv[1:]):
    spec = importlib.util.spec_from_file_location("model", folder / "model.py")
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    network = model.load()
    files = sorted((folder / "images").iterdir())
    segments = hasattr(model, "HALO")
    for path in files:
        image = model.read_image(path)
        logits = model.predict(network, image, 60) if segments else model.predict(network, image)
        (folder / (path.stem + ".image")).write_bytes(image.numpy().tobytes())
        (folder / (path.stem + ".logits")).write_bytes(logits.numpy().tobytes())
    sys.argv = ["model.py", *map(str, files)] + (["--out", str(folder / "masks")] if segments else [])
    model.main()
`

// findTorch returns the python3 that has PyTorch and Pillow. It skips the test if there is none.
func findTorch(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", "import torch, PIL").Run() == nil {
			return python
		}
	}
	t.Skip("python3-torch and python3-pil are not installed: run environment/peers/install")
	return ""
}

// TestExportedPython: PyTorch reads the images to the same bits, and computes the same logits
// and masks, for all options of the networks.
func TestExportedPython(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	python := findTorch(t)
	unet := func(norm string, bias bool, depth int) func(*train.Config) {
		return func(c *train.Config) {
			c.Model = model.Config{Kind: "unet2d", Base: 3, Depth: depth, Norm: norm, Bias: bias}
			c.Data.Foreground = map[bool]string{true: "black"}[bias]
			c.Epochs = 4 // after which the logits depend on far pixels
		}
	}
	var folders, runs []string
	for _, change := range []func(*train.Config){
		unet("batch", false, 2), unet("batch", true, 1), unet("none", false, 3),
		classifier("resnet", "cifar", 2, 1), classifier("resnet", "imagenet", 1, 2),
		classifier("resnetv2", "cifar", 2, 2), classifier("resnetv2", "imagenet", 2, 3),
		func(c *train.Config) { classifier("resnet50v2", "imagenet")(c); c.Data.Resize = 24 },
	} {
		run, folder := trainRun(t, change), t.TempDir()
		if _, err := Export(t.Context(), run, folder, ExportOptions{To: "pytorch"}); err != nil {
			t.Fatal(err)
		}
		writePictures(t, filepath.Join(folder, "images"))
		folders, runs = append(folders, folder), append(runs, run)
	}
	out, err := exec.CommandContext(t.Context(), python, append([]string{"-c", pythonTest}, folders...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "\n"); n != 5*len(pictures()) {
		t.Errorf("got %d lines, want one for each image of 5 classifiers:\n%s", n, out)
	}
	for i, folder := range folders {
		p := open(t, runs[i])
		for name := range pictures() {
			r, err := p.File(t.Context(), filepath.Join(folder, "images", name+".png"))
			if err != nil {
				t.Fatal(err)
			}
			if d := maxDifference(r.image, readFloats(t, filepath.Join(folder, name+".image"), len(r.image))); d != 0 {
				t.Errorf("%s, %s: the image differs by %g", p.trained.Config.Model.Kind, name, d)
			}
			if d := maxDifference(r.Logits, readFloats(t, filepath.Join(folder, name+".logits"), len(r.Logits))); d > 1e-5 {
				t.Errorf("%s, %s: the logits differ by %g", p.trained.Config.Model.Kind, name, d)
			}
			if p.classifies() {
				continue
			}
			mask, err := data.ReadPicture(t.Context(), filepath.Join(folder, "masks", name+".png"))
			if gray, ok := mask.(*image.Gray); err != nil || !ok || !slices.Equal(gray.Pix, r.Mask().Pix) {
				t.Errorf("%s: the mask differs (%v)", name, err)
			}
		}
	}
}

// pictures returns a picture of each form that PNG files have, of 131×150 or 40×30 pixels.
func pictures() map[string]image.Image {
	const height, width = 40, 30
	of := map[string]image.Image{"gray": noise(131, 150)}
	wide, alpha, palette := image.NewGray16(image.Rect(0, 0, width, height)), image.NewNRGBA(image.Rect(0, 0, width, height)), image.NewPaletted(image.Rect(0, 0, width, height), nil)
	for i := range 200 {
		palette.Palette = append(palette.Palette, color.NRGBA{uint8(i), uint8(i + 3), uint8(i), uint8(255 - i/2)})
	}
	for i, v := range noise(height, width).Pix {
		x, y := i%width, i/width
		wide.SetGray16(x, y, color.Gray16{Y: uint16(v)<<8 | uint16(i)&0xff})
		tint := uint8(i % 20)
		alpha.SetNRGBA(x, y, color.NRGBA{v/2 + tint, v / 2, v/2 + tint/2, uint8(i)})
		palette.SetColorIndex(x, y, v%200)
	}
	of["wide"], of["alpha"], of["palette"] = wide, alpha, palette
	return of
}

// writePictures writes pictures to the folder dir.
func writePictures(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, m := range pictures() {
		f, err := os.Create(filepath.Join(dir, name+".png"))
		if err == nil {
			err = png.Encode(f, m)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// readFloats returns the n float32 values in a file.
func readFloats(t *testing.T, path string, n int) []float32 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || len(text) != 4*n {
		t.Fatalf("%s has %d bytes, want %d values (%v)", path, len(text), n, err)
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(text[4*i:]))
	}
	return values
}
