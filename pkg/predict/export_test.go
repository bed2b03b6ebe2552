package predict

import (
	"encoding/binary"
	"fmt"
	"image"
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
		"\nCLASS_NAMES = [\"background\", \"foreground\"]\nMASK_VALUES = [0, 255] ",
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
// and its logits, as float32, beside each file, or why the module refuses the file.
const pythonTest = `
import importlib.util, pathlib, sys
import torch
torch.set_num_threads(1)
for folder in map(pathlib.Path, sys.argv[1:]):
    spec = importlib.util.spec_from_file_location("model", folder / "model.py")
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    network = model.load()
    segments = hasattr(model, "HALO")
    files = []
    for path in sorted((folder / "images").iterdir()):
        try:
            image = model.read_image(path)
        except ValueError as e:
            (folder / (path.stem + ".error")).write_text(str(e))
            continue
        logits = model.predict(network, image, 60) if segments else model.predict(network, image)
        (folder / (path.stem + ".image")).write_bytes(image.numpy().tobytes())
        (folder / (path.stem + ".logits")).write_bytes(logits.contiguous().numpy().tobytes())
        files.append(str(path))
    sys.argv = ["model.py", *files] + (["--out", str(folder / "masks")] if segments else [])
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
// and masks, for all options of the networks and of the data. Files that we refuse are refused.
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
	classes := map[int]string{0: "background", 30: "cell", 7: "nucleus", 9: "ring", 255: "ignore"}
	wide := []float64{1000, 30000.5}
	const gray, gray16 = "equal gray grayalpha paletteequal", "equal16 gray16"
	const rgb, rgb16 = "equal grayalpha palette paletteequal rgb rgba", "equal16 rgb16 rgba16"
	const old, photos = "clear equal gray gray16 grayalpha paletteequal tintedclear tintedpalette", "clear equal gray gray16 grayalpha palette paletteequal rgb rgba tintedclear tintedpalette"
	cases := []struct {
		change func(*train.Config)
		forms  string // that it accepts
	}{
		{unet("batch", false, 2), gray},
		{unet("batch", true, 1), gray},
		{unet("none", false, 3), gray},
		{onPairs(t, "rgb", []uint8{0, 7, 9, 30, 255}, func(c *data.Config) { c.MaskValues = classes }), rgb},
		{onPairs(t, "gray16", []uint8{7, 0}, func(c *data.Config) {
			c.Range, c.MaskValues = wide, map[int]string{7: "background", 0: "cell"}
		}), gray16},
		{onPairs(t, "rgb", []uint8{255, 0}, func(c *data.Config) { c.ToGray, c.Foreground = true, "black" }), "gray " + rgb},
		{onPairs(t, "rgb16", []uint8{0, 1, 2}, func(c *data.Config) {
			c.Range, c.MaskValues = wide, map[int]string{0: "background", 1: "cell", 2: "ignore"}
		}), rgb16},
		{onPairs(t, "rgb16", []uint8{0, 255}, func(c *data.Config) { c.ToGray, c.Range = true, wide }), "gray16 " + rgb16},
		{onPairs(t, "gray", []uint8{0, 255}, func(c *data.Config) { c.Reading = data.ReadingGray }), old},
		{classifier("resnet", "cifar", 2, 1), photos},
		{classifier("resnet", "imagenet", 1, 2), photos},
		{classifier("resnetv2", "cifar", 2, 2), photos},
		{classifier("resnetv2", "imagenet", 2, 3), photos},
		{func(c *train.Config) { classifier("resnet50v2", "imagenet")(c); c.Data.Resize = 24 }, photos},
	}
	var folders, runs []string
	classified := 0
	for _, c := range cases {
		run, folder := trainRun(t, c.change), t.TempDir()
		if _, err := Export(t.Context(), run, folder, ExportOptions{To: "pytorch"}); err != nil {
			t.Fatal(err)
		}
		for name, f := range forms() {
			if (c.forms == photos || c.forms == old) && f.bits == 16 && f.color != colorGray {
				continue // Pillow drops the lower bytes
			}
			img := noise(40, 30)
			if name == "gray" || name == "rgb" || name == "gray16" || name == "rgb16" {
				img = noise(131, 150) // several windows
			}
			writeFile(t, filepath.Join(folder, "images", name+".png"), f.encode(img))
		}
		if c.forms == photos {
			classified += len(strings.Fields(photos))
		}
		folders, runs = append(folders, folder), append(runs, run)
	}
	out, err := exec.CommandContext(t.Context(), python, append([]string{"-c", pythonTest}, folders...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "\n"); n != classified {
		t.Errorf("got %d lines, want one for each of %d images that are classified:\n%s", n, classified, out)
	}
	for i, folder := range folders {
		p := open(t, runs[i])
		files, err := filepath.Glob(filepath.Join(folder, "images", "*"))
		if err != nil {
			t.Fatal(err)
		}
		var accepted []string
		for _, path := range files {
			if comparePython(t, p, folder, path) {
				accepted = append(accepted, strings.TrimSuffix(filepath.Base(path), ".png"))
			}
		}
		want := strings.Fields(cases[i].forms)
		if slices.Sort(want); !slices.Equal(accepted, want) {
			t.Errorf("run %d accepts the files %v, want %v", i, accepted, want)
		}
	}
}

// comparePython compares what a module has written to folder for the image at path with the results of p. It
// reports whether both accept the image.
func comparePython(t *testing.T, p *Predictor, folder, path string) bool {
	t.Helper()
	name := strings.TrimSuffix(filepath.Base(path), ".png")
	result := filepath.Join(folder, name)
	refusal, err := os.ReadFile(result + ".error")
	refused := err == nil
	r, err := p.File(t.Context(), path)
	if refused && name == "grayalpha16" && strings.Contains(string(refusal), "that Pillow does not keep: save it as a PNG file without alpha") {
		return false
	}
	if err != nil || refused {
		ours, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprint(err), "predict "+path+": the image "), ": ")
		theirs, _, _ := strings.Cut(strings.TrimPrefix(string(refusal), path+" "), ": ")
		if ours != theirs && !forms()[name].transparent || err == nil || !refused {
			t.Errorf("%s: got %q, want %v", name, refusal, err)
		}
		return false
	}
	if d := maxDifference(r.image, readFloats(t, result+".image", len(r.image))); d != 0 {
		t.Errorf("%s, %s: the image differs by %g", p.trained.Config.Model.Kind, name, d)
	}
	if d := maxDifference(r.Logits, readFloats(t, result+".logits", len(r.Logits))); d > 1e-5 {
		t.Errorf("%s, %s: the logits differ by %g", p.trained.Config.Model.Kind, name, d)
	}
	if p.isClassifier() {
		return true
	}
	mask, err := data.ReadPicture(t.Context(), filepath.Join(folder, "masks", name+".png"))
	if gray, ok := mask.(*image.Gray); err != nil || !ok || !slices.Equal(gray.Pix, r.Mask().Pix) {
		t.Errorf("%s: the mask differs (%v)", name, err)
	}
	return true
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
