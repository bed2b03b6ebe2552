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
		{"gpu", func(o *engine.Options) { o.Device, o.Precision, o.Convolution = "cuda", "bf16", "heuristic" }, ""},
		{"second gpu", func(o *engine.Options) { o.Device, o.Precision = "cuda:1", "fp16" }, ""},
		{"switched off", func(o *engine.Options) {
			o.Fuse, o.FusedOptimizer, o.Graph, o.TF32, o.Overlap = false, false, false, false, false
		}, ""},
		{"nothing set", func(o *engine.Options) { *o = engine.Options{} }, `unknown device "": use cpu, reference, cuda`},
		{"no gpu", func(o *engine.Options) { o.Device = "cuda:x" }, `invalid device "cuda:x": only cuda may have a number`},
		{"negative gpu", func(o *engine.Options) { o.Device = "cuda:-1" }, `invalid device "cuda:-1": only cuda may have a number`},
		{"numbered cpu", func(o *engine.Options) { o.Device = "cpu:0" }, `invalid device "cpu:0": only cuda may have a number`},
		{"winograd on a gpu", func(o *engine.Options) { o.Device, o.Convolution = "cuda", "winograd" }, `unknown convolution "winograd" on cuda: use auto or heuristic`},
		{"double precision on a gpu", func(o *engine.Options) { o.Device, o.Precision = "cuda", "fp64" }, `"fp64" is not supported on cuda: use fp32, bf16 or fp16 (fp64 only on reference)`},
		{"device", func(o *engine.Options) { o.Device = "tpu" }, `unknown device "tpu"`},
		{"convolution", func(o *engine.Options) { o.Convolution = "fft" }, `unknown convolution "fft" on cpu: use auto, winograd or direct`},
		{"precision", func(o *engine.Options) { o.Precision = "fp16" }, `precision "fp16" is not supported on cpu: use fp32 or bf16 (fp16 only on reference or cuda)`},
		{"double precision on the cpu engine", func(o *engine.Options) { o.Precision = "fp64" }, "use fp32 or bf16 (fp64 only on reference)"},
		{"threads", func(o *engine.Options) { o.Threads = 0 }, "threads is 0: use 1 to 1024"},
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

func TestOptionsCUDA(t *testing.T) {
	for _, tt := range []struct {
		device string
		number int
		ok     bool
	}{{"cpu", -1, false}, {"cuda", -1, true}, {"cuda:0", 0, true}, {"cuda:3", 3, true}, {"cuda:", 0, false}, {"tpu", 0, false}} {
		o := engine.Options{Device: tt.device}
		number, ok := o.CUDA()
		if ok != tt.ok || ok && number != tt.number {
			t.Errorf("%q is GPU %d, %v; want %d, %v", tt.device, number, ok, tt.number, tt.ok)
		}
	}
}

func ExampleOptions_Validate() {
	o := engine.DefaultOptions()
	o.Precision = "fp64"
	fmt.Println(o.Validate())
	// Output: validate engine options: precision "fp64" is not supported on cpu: use fp32 or bf16 (fp64 only on reference)
}
