package train

import (
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// TestAugmentOptions: the options of pictures are set and recorded, and refused for a GPU by
// name; pixels from outside of a picture are ignored if the network has classes.
func TestAugmentOptions(t *testing.T) {
	c, err := DefaultConfig().With("data.augment.rotate_degrees=15", "data.augment.scale=0.2", "data.augment.gamma=0.3")
	if err != nil {
		t.Fatal(err)
	}
	if want := (data.Augment{RotateDegrees: 15, Scale: 0.2, Gamma: 0.3}); c.Data.Augment != want || c.LoaderOptions().Augment != want {
		t.Errorf("got %+v, want %+v", c.Data.Augment, want)
	}
	for key, recorded := range map[string]any{"rotate_degrees": 15.0, "scale": 0.2, "gamma": 0.3} {
		for _, c := range []struct {
			config Config
			want   any
		}{{c, recorded}, {DefaultConfig(), nil}} {
			doc, err := c.config.jsonDocument()
			if err != nil {
				t.Fatal(err)
			}
			if got := doc["data"].(map[string]any)["augment"].(map[string]any)[key]; got != c.want {
				t.Errorf("run.json has %s %v, want %v", key, got, c.want)
			}
		}
		_, err := DefaultConfig().With("engine.device=cuda:1", "data.augment."+key+"=0.5")
		if want := "data.augment." + key + " is 0.5, but engine.device is cuda:1, and a GPU cannot apply it: use data.augment." + key + "=0, or engine.device=cpu"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if c.LoaderOptions().IgnoreOutside {
		t.Error("pixels from outside are ignored in masks of two classes")
	}
	c.Data.MaskValues = map[int]string{0: "background", 1: "cell", 255: data.ClassIgnore}
	if !c.LoaderOptions().IgnoreOutside {
		t.Error("pixels from outside are not ignored, although the network has classes")
	}
}
