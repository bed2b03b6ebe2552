package strategy

import (
	"encoding/json"
	"testing"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/engine"
)

// TestConfigForms: a config is a name, or a name with options, in YAML and in JSON.
func TestConfigForms(t *testing.T) {
	for _, c := range []struct {
		text string
		was  Config
		want Config
	}{
		{"ddp", Config{}, Config{Name: "ddp"}},
		{"other", Config{Name: "ddp"}, Config{Name: "other"}},
		{"{name: other}", Config{Name: "ddp"}, Config{Name: "other"}},
		{"{}", Config{Name: "other"}, Config{Name: "other"}},
		{"null", Config{Name: "other"}, Config{Name: "other"}},
	} {
		got := c.was
		if err := yaml.Unmarshal([]byte(c.text), &got); err != nil || got != c.want {
			t.Errorf("%s after %+v: got %+v, error %v, want %+v", c.text, c.was, got, err, c.want)
		}
	}
	for _, c := range []struct {
		c    Config
		want string
	}{
		{Config{}, `"ddp"`},
		{Config{Name: "ddp"}, `"ddp"`},
		{Config{Name: "other"}, `"other"`}, // of another version of Lockstep
	} {
		text, err := json.Marshal(c.c)
		if err != nil || string(text) != c.want {
			t.Errorf("%+v: got %s, error %v, want %s", c.c, text, err, c.want)
		}
		var back Config
		if err := json.Unmarshal(text, &back); err != nil || back.String() != c.c.String() {
			t.Errorf("%s: got %+v, error %v", text, back, err)
		}
	}
}

// TestOnlyPlainDDPOnGPUs: the other strategies, and the options of ddp, have not met a GPU.
func TestOnlyPlainDDPOnGPUs(t *testing.T) {
	for _, device := range []string{"cpu", "reference", "cuda", "cuda:1"} {
		o := engine.DefaultOptions()
		o.Device = device
		if err := (Config{}).CheckEngine(o); err != nil {
			t.Errorf("ddp on %s: %v", device, err)
		}
		err := Config{Name: "other"}.CheckEngine(o)
		want := ""
		if _, gpu := o.CUDA(); gpu {
			want = "strategy other on device " + device + ": it has not been run on a GPU yet: use device cpu or reference, or strategy ddp without options"
		}
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}
