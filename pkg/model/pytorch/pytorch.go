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
	"lockstep/pkg/weights"
)

// The files that Write writes.
const (
	moduleFile  = "model.py"
	weightsFile = "model.safetensors"
)

// Files returns the paths of the files that Write writes to the folder dir.
func Files(dir string) []string {
	return []string{filepath.Join(dir, moduleFile), filepath.Join(dir, weightsFile)}
}

// Description is what a Python file contains besides the network.
type Description struct {
	About []string // lines for the file's documentation: where the weights come from

	// For segmentation: windows of an image begin and end at multiples of Step pixels, and
	// exceed their kept parts by Halo pixels, a multiple of Step. Background and Foreground
	// are the gray values in masks.
	Step, Halo             int
	Background, Foreground uint8

	// For classification: images are scaled to Resize×Resize pixels, or not if it is 0.
	Resize     int
	ClassNames []string
}

//go:embed python
var python embed.FS

// twin is the counterpart of a network in Python.
type twin struct {
	file string // the one in python that has the module
	call string // the call that makes it
}

// Check returns an error, which names a layer, if the Python file cannot have net.
func Check(net model.Network) error {
	_, err := findTwin(net)
	return err
}

// findTwin returns the counterpart of net, or the error of Check if it has none.
func findTwin(net model.Network) (twin, error) {
	flag := map[bool]string{false: "False", true: "True"}
	switch n := net.(type) {
	case *model.UNet2DNetwork:
		c := n.Config()
		return twin{"unet2d.py", fmt.Sprintf("UNet2D(inputs=%d, outputs=%d, base=%d, depth=%d, batch_norm=%s, bias=%s)",
			c.InChannels, c.OutChannels, c.Base, c.Depth, flag[c.Norm == "batch"], flag[c.Bias])}, nil
	case *model.ResNet:
		c, file, module := n.Config(), "resnet.py", "ResNet"
		if n.IsV2() {
			file, module = "resnetv2.py", "ResNetV2"
		}
		blocks := strings.ReplaceAll(fmt.Sprint(c.Blocks), " ", ", ")
		return twin{file, fmt.Sprintf("%s(inputs=%d, classes=%d, base=%d, blocks=%s, cifar_stem=%s, momentum=%g)",
			module, c.InChannels, c.Classes, c.Base, blocks, flag[c.Stem == model.StemCIFAR], n.BatchNormMomentum())}, nil
	}
	s, err := model.Summarize(net, 1)
	if err != nil {
		return twin{}, err
	}
	return twin{}, fmt.Errorf("layer %q (%s) of %s has no counterpart: the Python file can only have the networks unet2d and resnet", s.Layers[0].Name, s.Layers[0].Kind, net.Name())
}

// Write writes net with the given weights, its parameters and running statistics in float32, to
// the folder dir: the files that Files returns.
func Write(dir string, net model.Network, tensors []weights.Tensor, d Description) error {
	text, err := module(net, d)
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

// module returns the content of the Python file.
func module(net model.Network, d Description) ([]byte, error) {
	t, err := findTwin(net)
	if err != nil {
		return nil, err
	}
	segments := net.Task() == model.Segmentation
	names, err := json.Marshal(d.ClassNames) // a list of strings in JSON is one in Python
	if err != nil {
		return nil, err
	}
	apply, shell, use := "classify.py", "python3 model.py new/1.png new/2.png", "probabilities = logits.softmax(0)"
	if segments {
		apply, shell, use = "segment.py", "python3 model.py new/1.png new/2.png --out masks", "foreground = logits > 0"
	}
	about := make([]string, len(d.About))
	for i, line := range d.About {
		about[i] = strings.NewReplacer(`\`, `\\`, `"""`, `'''`).Replace(line) // it is between """ and """
	}
	d.About = about
	head, err := template.ParseFS(python, "python/head.py.tmpl")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := head.Execute(&b, struct {
		Description
		Network, New, Shell, Use, Classes string
		Segments                          bool
	}{d, net.Name(), t.call, shell, use, strings.ReplaceAll(string(names), `","`, `", "`), segments}); err != nil {
		return nil, err
	}
	for _, name := range []string{t.file, "read.py", apply} {
		part, err := python.ReadFile("python/" + name)
		if err != nil {
			return nil, err
		}
		b.WriteString("\n\n")
		b.Write(part)
	}
	b.WriteString("\n\nif __name__ == \"__main__\":\n    main()\n")
	return b.Bytes(), nil
}
