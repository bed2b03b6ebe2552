package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"lockstep/pkg/engine"
)

func TestOptionsValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(o *engine.Options)
		want   string // "" for options that are fine
	}{
		{"default", func(*engine.Options) {}, ""},
		{"reference in double precision", func(o *engine.Options) { o.Device, o.Precision = "reference", "fp64" }, ""},
		{"direct", func(o *engine.Options) { o.Convolution = "direct" }, ""},
		{"winograd", func(o *engine.Options) { o.Convolution = "winograd" }, ""},
		{"nothing set", func(o *engine.Options) { *o = engine.Options{} }, `device "" is not known: use cpu or reference`},
		{"device", func(o *engine.Options) { o.Device = "tpu" }, `device "tpu" is not known`},
		{"convolution", func(o *engine.Options) { o.Convolution = "fft" }, `convolution "fft" is not known: use auto, winograd or direct`},
		{"precision", func(o *engine.Options) { o.Precision = "fp16" }, `precision "fp16" is not offered on cpu`},
		{"double precision on the cpu engine", func(o *engine.Options) { o.Precision = "fp64" }, "use fp32 (fp64 only on reference)"},
		{"threads", func(o *engine.Options) { o.Threads = 0 }, "threads is 0: use at least 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := engine.DefaultOptions()
			tt.change(&o)
			err := o.Validate()
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func ExampleOptions_Validate() {
	o := engine.DefaultOptions()
	o.Precision = "fp64"
	fmt.Println(o.Validate())
	// Output: validate engine options: precision "fp64" is not offered on cpu: use fp32 (fp64 only on reference)
}
