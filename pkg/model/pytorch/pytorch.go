// Package pytorch writes a network for PyTorch: its weights, and a Python file with the module, and
// with functions that read images as in training and predict them.
package pytorch

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/weights"
)

// Names of the files that Write writes.
const (
	moduleFile  = "model.py"
	weightsFile = "model.safetensors"
)

// Files returns the paths of the files that Write writes to the folder dir.
func Files(dir string) []string {
	return []string{filepath.Join(dir, moduleFile), filepath.Join(dir, weightsFile)}
}

// Description contains what the Python file needs to know in addition to the network.
type Description struct {
	About      []string // lines for the file's documentation: where the weights come from
	ClassNames []string // of images, or of pixels

	// For segmentation, images are processed in windows, which begin and end at multiples of Step
	// pixels. A window extends Halo pixels, a multiple of Step, beyond the part whose logits are
	// kept.
	Step, Halo int
	MaskValues []uint8   // of the classes in masks
	Channels   int       // of images: 1 (gray) or 3 (RGB)
	ToGray     bool      // colors are converted to gray
	Range      []float64 // of 16-bit images: the values that become 0 and 1; nil for images of 8 bits
	ReadsGray  bool      // images are read by the rules of data.ReadingGray

	// For classification, images are scaled to Resize×Resize pixels. 0 means that they are not
	// scaled.
	Resize int
}

//go:embed python
var pythonFiles embed.FS

// pythonCounterpart describes the Python module that computes the same as a network.
type pythonCounterpart struct {
	file string // the one in python that has the module
	call string // the call that makes it
}

// Check returns an error if net cannot be written as a Python file. The error names the layer.
func Check(net model.Network) error {
	_, err := findPythonCounterpart(net)
	return err
}

// findPythonCounterpart returns the Python counterpart of net, or the error of Check if there is none.
func findPythonCounterpart(net model.Network) (pythonCounterpart, error) {
	flag := map[bool]string{false: "False", true: "True"}
	switch n := net.(type) {
	case *model.UNet2DNetwork:
		c := n.Config()
		return pythonCounterpart{"unet2d.py", fmt.Sprintf("UNet2D(inputs=%d, outputs=%d, base=%d, depth=%d, batch_norm=%s, bias=%s)",
			c.InChannels, c.OutChannels, c.Base, c.Depth, flag[c.Norm == "batch"], flag[c.Bias])}, nil
	case *model.ResNet:
		c, file, module := n.Config(), "resnet.py", "ResNet"
		if n.IsV2() {
			file, module = "resnetv2.py", "ResNetV2"
		}
		blocks := strings.ReplaceAll(fmt.Sprint(c.Blocks), " ", ", ")
		return pythonCounterpart{file, fmt.Sprintf("%s(inputs=%d, classes=%d, base=%d, blocks=%s, cifar_stem=%s, momentum=%g)",
			module, c.InChannels, c.Classes, c.Base, blocks, flag[c.Stem == model.StemCIFAR], n.BatchNormMomentum())}, nil
	}
	s, err := model.Summarize(net, 1)
	if err != nil {
		return pythonCounterpart{}, err
	}
	return pythonCounterpart{}, fmt.Errorf("layer %q (%s) of %s has no counterpart: the Python file can only have the networks unet2d and resnet", s.Layers[0].Name, s.Layers[0].Kind, net.Name())
}

// Write writes the files that Files returns to the folder dir: net as a Python module, and
// tensors, which contains its parameters and running statistics in float32.
func Write(dir string, net model.Network, tensors []weights.Tensor, d Description) error {
	text, err := renderModule(net, d)
	if err == nil {
		err = os.MkdirAll(dir, 0o777)
	}
	if err == nil {
		err = weights.Write(filepath.Join(dir, weightsFile), tensors, map[string]string{"format": "pt", "model": net.Name()})
	}
	if err == nil {
		err = wholefile.WriteBytes(filepath.Join(dir, moduleFile), text, 0o666)
	}
	return err
}

// renderModule returns the content of the Python file.
func renderModule(net model.Network, d Description) ([]byte, error) {
	t, err := findPythonCounterpart(net)
	if err != nil {
		return nil, err
	}
	g, err := net.Graph(1, nn.Eval)
	if err != nil {
		return nil, err
	}
	v := moduleTemplateValues{
		Description: d, Network: net.Name(), New: t.call, Names: formatPythonList(d.ClassNames), Values: formatPythonList(d.MaskValues),
		Outputs: g.Outputs()[0].Shape[1], Segments: net.Task() == model.Segmentation,
	}
	parts := []string{"head.py.tmpl", t.file, "load.py"}
	switch {
	case !v.Segments:
		v.Shell, v.Use = "python3 model.py new/1.png new/2.png", "probabilities = logits.softmax(0)"
		parts = append(parts, "pixels.py", "classify.py")
	case d.ReadsGray:
		parts = append(parts, "pixels.py", "gray.py", "segment.py.tmpl")
	default:
		parts = append(parts, "values.py.tmpl", "segment.py.tmpl")
	}
	if v.Segments {
		v.Shell, v.Use = "python3 model.py new/1.png new/2.png --out masks", "classes = (logits > 0).long()"
		if v.Outputs > 1 {
			v.Use = "classes = logits.argmax(0)"
		}
		v.Use += "  # indices in CLASS_NAMES and MASK_VALUES"
	}
	v.About = make([]string, len(d.About))
	for i, line := range d.About {
		v.About[i] = strings.NewReplacer(`\`, `\\`, `"""`, `'''`).Replace(line) // it is between """ and """
	}
	files, err := template.ParseFS(pythonFiles, "python/*")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for i, part := range parts {
		if i > 0 {
			b.WriteString("\n\n")
		}
		if err := files.ExecuteTemplate(&b, part, v); err != nil {
			return nil, err
		}
	}
	b.WriteString("\n\nif __name__ == \"__main__\":\n    main()\n")
	return b.Bytes(), nil
}

// moduleTemplateValues contains the values that are inserted into the template of the Python file.
type moduleTemplateValues struct {
	Description
	Network, New  string // the name of the network, and the call that makes it
	Names, Values string // of the classes, as Python's lists
	Shell, Use    string // examples
	Outputs       int    // logits of an image or pixel
	Segments      bool
}

// formatPythonList formats strings or numbers as a list in Python.
func formatPythonList[T any](list []T) string {
	var texts []string
	for _, v := range list {
		text, _ := json.Marshal(v) // a string in JSON is one in Python
		texts = append(texts, string(text))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
