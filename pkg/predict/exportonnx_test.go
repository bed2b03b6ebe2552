package predict

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// TestExportedONNX: a file says what its image and logits are, ONNX's checker accepts it, and ONNX Runtime
// computes our logits: here of four classes in RGB.
func TestExportedONNX(t *testing.T) {
	dir := t.TempDir()
	export := func(name string, change func(*train.Config), want ...string) (run string) {
		t.Helper()
		run = trainRun(t, change)
		if _, err := Export(t.Context(), run, filepath.Join(dir, name+".onnx"), ExportOptions{To: "onnx"}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, name+".onnx"))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range want {
			if !bytes.Contains(text, []byte("\n"+line)) {
				t.Errorf("%s.onnx lacks %q", name, line)
			}
		}
		return run
	}
	export("two", nil,
		"image       gray values, 0 to 1; height and width are multiples of 4",
		"logits      of foreground, which is where they exceed 0; a window has the logits of the image 24 pixels from its border",
		"classes     (and their values in masks) background (0), foreground (255)")
	export("range", onPairs(t, "rgb16", []uint8{0, 7}, func(c *data.Config) {
		c.ToGray, c.Range, c.MaskValues = true, []float64{100, 4095}, map[int]string{0: "background", 7: "cell"}
	}), "image       gray values (of colors, 0.299 red + 0.587 green + 0.114 blue), 100 to 4095 of 16 bits scaled to 0 to 1 and rounded to multiples of 1/255; values outside become 0 or 1; height",
		"logits      of cell, which", "classes     (and their values in masks) background (0), cell (7)")
	p := open(t, export("four", onPairs(t, "rgb", []uint8{0, 7, 9, 30, 255}, func(c *data.Config) {
		c.MaskValues = map[int]string{0: "background", 30: "cell", 7: "nucleus", 9: "ring", 255: "ignore"}
	}), "image       red, green and blue, 0 to 1; height",
		"logits      of the classes in this order; the class of a pixel has the largest logit;",
		"classes     (and their values in masks) background (0), nucleus (7), ring (9), cell (30)"))
	file := filepath.Join(dir, "four")
	t.Run("checker", func(t *testing.T) {
		const python = "/usr/bin/python3"
		if exec.Command(python, "-c", "import onnx").Run() != nil {
			t.Skip("python3-onnx is not installed: environment/test installs it")
		}
		const check = "import onnx, sys; onnx.checker.check_model(onnx.load(sys.argv[1]), full_check=True)"
		if out, err := exec.CommandContext(t.Context(), python, "-c", check, file+".onnx").CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("runtime", func(t *testing.T) {
		folder, err := filepath.Abs(filepath.Join("..", "..", "environment"))
		if err != nil {
			t.Fatal(err)
		}
		modules := filepath.Join(folder, ".cache", "onnxruntime", "node_modules")
		if _, err := os.Stat(filepath.Join(modules, "onnxruntime-web")); err != nil {
			t.Skip("onnxruntime-web is not installed: environment/test installs it")
		}
		picture := filepath.Join(dir, "new.png")
		writeFile(t, picture, forms()["rgb"].encode(noise(40, 64)))
		r, err := p.File(t.Context(), picture)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		_ = binary.Write(&b, binary.LittleEndian, r.image) // to memory
		writeFile(t, file+".image", b.Bytes())
		cmd := exec.CommandContext(t.Context(), "node", filepath.Join(folder, "onnxruntime", "run.cjs"), file, "1,3,40,64")
		cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if d := maxDifference(r.Logits, readFloats(t, file+".logits", 4*40*64)); d > 1e-4 {
			t.Errorf("the logits differ by %g", d)
		}
	})
}
