package strategy

import (
	"encoding/json"
	"strings"
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
		{"{steps: 4}", Config{Name: "local_sgd", AverageOptimizer: true}, Config{Name: "local_sgd", Steps: 4, AverageOptimizer: true}},
		{"{name: zero1}", Config{Name: "local_sgd", Steps: 4}, Config{Name: "zero1"}}, // the steps belonged to local_sgd
		{"zero1", Config{Name: "local_sgd", Steps: 4}, Config{Name: "zero1"}},
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
		{Config{Name: "zero1"}, `"zero1"`},
		{Config{Name: "local_sgd", Steps: 4}, `{"average_optimizer":false,"name":"local_sgd","steps":4}`},
		{Config{Name: "paramserver", Servers: 2}, `{"max_staleness":0,"name":"paramserver","servers":2}`},
		{Config{NoCommunication: true}, `{"broadcast_buffers":false,"gradient_compression":"none","name":"ddp","no_communication":true}`},
		{Config{GradientCompression: "bf16"}, `{"broadcast_buffers":false,"gradient_compression":"bf16","name":"ddp","no_communication":false}`},
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

// TestRemovedOptions: run.json of an earlier version may have options that were removed. The error
// names the option, and the rest of the strategy is decoded.
func TestRemovedOptions(t *testing.T) {
	for text, c := range map[string]struct {
		removed string
		want    Config
	}{
		`{"backup_workers":0,"max_staleness":2,"name":"paramserver","servers":2}`:    {"", Config{Name: "paramserver", Servers: 2, MaxStaleness: 2}},
		`{"backup_workers":1,"max_staleness":0,"name":"paramserver","servers":2}`:    {"strategy.backup_workers=1", Config{Name: "paramserver", Servers: 2}},
		`{"gradient_compression":"topk:0.01","name":"ddp","no_communication":false}`: {"strategy.gradient_compression=topk:0.01", Config{Name: "ddp"}},
		`{"gradient_compression":"powersgd:4","name":"ddp"}`:                         {"strategy.gradient_compression=powersgd:4", Config{Name: "ddp"}},
		`{"gradient_compression":"fp16","name":"ddp"}`:                               {"", Config{Name: "ddp", GradientCompression: "fp16"}},
	} {
		var got Config
		err := json.Unmarshal([]byte(text), &got)
		if want := c.removed + " was removed from Lockstep: train again without it, in another run folder"; got != c.want || c.removed == "" && err != nil || c.removed != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: got %+v, error %v, want %+v, %q", text, got, err, c.want, c.removed)
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
			want = "strategy other on device " + device + ": the strategy has not been tested on a GPU yet: use device cpu or reference, or strategy ddp without options"
		}
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// TestParse: text with options gives the config that YAML returns, and the reverse.
func TestParse(t *testing.T) {
	for text, want := range map[string]Config{
		"ddp": {Name: "ddp"}, "zero1": {Name: "zero1"},
		"local_sgd:steps=4:average_optimizer=true":             {Name: "local_sgd", Steps: 4, AverageOptimizer: true},
		"ddp:no_communication=true":                            {Name: "ddp", NoCommunication: true},
		"ddp:gradient_compression=fp16":                        {Name: "ddp", GradientCompression: "fp16"},
		"ddp:gradient_compression=bf16:broadcast_buffers=true": {Name: "ddp", GradientCompression: "bf16", BroadcastBuffers: true},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, error %v, want %+v", text, got, err, want)
		}
		var back Config
		if err := yaml.Unmarshal([]byte(got.YAML()), &back); err != nil || back != want {
			t.Errorf("%s: YAML %s gives %+v, error %v", text, got.YAML(), back, err)
		}
	}
	for text, want := range map[string]string{
		"":                                `strategy "": got no name, want a name, such as ddp, possibly followed by options`,
		":steps=4":                        `strategy ":steps=4": got no name, want a name`,
		"ddp:gradient_compression=fp16:2": `strategy "ddp:gradient_compression=fp16:2": got option "2", want option=value`,
		"ddp:gradient_compression=fp61":   `strategy.gradient_compression: unknown method "fp61" (did you mean fp16?): use fp16 or bf16`,
		"zero1:gradient_compression=fp16": `strategy.gradient_compression does not apply to strategy zero1`,
		"ddp:gradient_compression=fp16:no_communication=true": `strategy.no_communication and strategy.gradient_compression are both set`,
		"ddp:":              `strategy "ddp:": got option "", want option=value`,
		"zro1":              `unknown strategy "zro1" (did you mean zero1?): use one of `,
		"local_sgd:4":       `strategy "local_sgd:4": got option "4", want option=value`,
		"local_sgd:steps=x": `strategy.steps is "x": expected a whole number`,
		"local_sgd:step=4":  `unknown key "strategy.step" (did you mean steps?)`,
		"it's}":             `unknown strategy "it's}"`,
	} {
		if _, err := Parse(text); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", text, err, want)
		}
	}
}

// TestExplain: the table and the explanations name every strategy and option.
func TestExplain(t *testing.T) {
	text := Explain()
	for _, k := range Kinds() {
		for _, want := range append([]string{"\n" + k.Name + "  ", "\n" + k.Name + "\n", k.Bytes, k.Guarantee}, k.Options...) {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	}
}
