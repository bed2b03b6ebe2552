package pytorch

import (
	"strings"
	"testing"

	"lockstep/pkg/model"
)

// TestCheck: networks without a counterpart are refused by the name of a layer.
func TestCheck(t *testing.T) {
	for name, want := range map[string]string{
		"unet2d-study": "", "resnet50": "", "resnet152v2": "",
		"unet3d-sc21": `layer "down.0" (Conv3D) of unet3d-64x6 has no counterpart`,
	} {
		net, err := model.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(net); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", name, err, want)
		}
	}
}

// TestDocumentation: no line of the description ends the file's documentation.
func TestDocumentation(t *testing.T) {
	net, err := model.Named("unet2d-study")
	if err != nil {
		t.Fatal(err)
	}
	text, err := renderModule(net, Description{About: []string{`run a\b"""`, "last"}, Step: 16, Halo: 96})
	if err != nil || !strings.Contains(string(text), "run a\\\\b'''\nlast\n") {
		t.Errorf("error %v, got %.300s", err, text)
	}
}
