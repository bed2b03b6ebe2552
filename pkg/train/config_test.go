package train

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/data"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// sc21Names are the tutorial's configs.
func sc21Names() []string {
	return []string{"base", "short", "short_opt", "bs64_opt", "bs256_opt", "bs512_test", "bs512_opt", "bs2048_opt", "bs8192_opt"}
}

// twinned are the configs that have a smaller variant for a laptop.
func twinned() []string {
	return append(sc21Names(), "unet2d-study", "resnet50v2-cifar10", "resnet152v2-cifar10", "resnet50-imagenet")
}

func TestShippedConfigsAreValid(t *testing.T) {
	names := Names()
	want := []string{"em-membrane", "unet2d-cells", "unet2d-study-pytorch", "unet2d-study-tensorflow", "unet2d-study-warmup"}
	for _, n := range twinned() {
		want = append(want, n, n+"-laptop")
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("shipped configs (-want +got):\n%s", diff)
	}
	for _, name := range names {
		c, err := Named(name, "data.path=somewhere")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.Name != name {
			t.Errorf("config %s calls itself %s", name, c.Name)
		}
	}
}

// TestPublishedConfigs compares the shipped configs with the published numbers: total steps,
// initial learning rates and parameters.
func TestPublishedConfigs(t *testing.T) {
	for i, want := range []struct {
		name              string
		workers, steps    int
		initial           float64
		samples, heldBack int
	}{
		{"base", 1, 10240, 2e-4, 65536, 8192},
		{"short", 1, 256, 2e-4, 4096, 512},
		{"short_opt", 1, 256, 2e-4, 4096, 512},
		{"bs64_opt", 1, 10240, 2e-4, 65536, 8192},
		{"bs256_opt", 4, 5120, 4e-4, 65536, 8192},
		{"bs512_test", 8, 1280, 5.657e-4, 65536, 8192},
		{"bs512_opt", 8, 5120, 5.657e-4, 65536, 8192},
		{"bs2048_opt", 32, 5120, 1.131e-3, 65536, 8192},
		{"bs8192_opt", 128, 2560, 2.263e-3, 65536, 8192},
	} {
		c, err := Named(want.name)
		if err != nil {
			t.Fatal(err)
		}
		if c.Name != sc21Names()[i] || c.Data.Samples != want.samples || c.Data.TestSamples != want.heldBack || !c.Data.DropLast || c.Data.Augment.Crop != 64 || c.Data.InputChannels != 4 || c.Data.TargetChannels != 5 {
			t.Errorf("%s: %+v", want.name, c.Data)
		}
		r := optim.TrainingRun{Workers: want.workers, GlobalBatch: c.Batch * want.workers, Epochs: c.Epochs}
		r.StepsPerEpoch = c.Data.Samples / r.GlobalBatch
		if got := r.Epochs * r.StepsPerEpoch; got != want.steps {
			t.Errorf("%s: %d steps, want %d", want.name, got, want.steps)
		}
		// The list gives four digits, the last of 1.131e-3 being worth 9e-4 of it.
		if got := c.Schedule.ScaledRate(c.Optimizer.LearningRate, r); math.Abs(got-want.initial) > 4.5e-4*want.initial {
			t.Errorf("%s: first rate %g, want %g", want.name, got, want.initial)
		}
	}
	base, err := Named("base")
	if err != nil {
		t.Fatal(err)
	}
	one := optim.TrainingRun{Workers: 1, GlobalBatch: 64, StepsPerEpoch: 1024, Epochs: base.Epochs}
	if got := base.Schedule.At(base.Optimizer.LearningRate, one, 0, 1023); math.Abs(got-1.9510565e-4) > 5e-12 {
		t.Errorf("base: rate at iteration 1024 of 10240 is %.8g, want 1.9510565e-4", got)
	}
	for _, want := range []struct {
		name          string
		image, target []int
		parameters    int // without running statistics
	}{
		{"base", []int{4, 64, 64, 64}, []int{5, 64, 64, 64}, 116_977_029},
		{"unet2d-study", []int{1, 768, 1024}, []int{1, 768, 1024}, 487_145},
		{"resnet50v2-cifar10", []int{3, 128, 128}, []int{1}, 23_585_290 - 45_440},
		{"resnet152v2-cifar10", []int{3, 128, 128}, []int{1}, 58_352_138 - 143_744},
		{"resnet50-imagenet", []int{3, 256, 256}, []int{1}, 25_557_032},
	} {
		c, err := Named(want.name, "data.path=somewhere")
		if err != nil {
			t.Fatal(err)
		}
		net, err := c.Model.Network(want.image, want.target)
		if err != nil {
			t.Fatal(err)
		}
		if net.Parameters() != want.parameters {
			t.Errorf("%s: %d parameters, want %d", want.name, net.Parameters(), want.parameters)
		}
	}
}

// TestStudyConfigs compares the schedules in YAML with the schedules of package optim, and
// all other settings of the variants with unet2d-study.
func TestStudyConfigs(t *testing.T) {
	study, err := Named("unet2d-study", "data.path=somewhere")
	if err != nil {
		t.Fatal(err)
	}
	warmup := optim.StudyScheduleTensorFlow()
	warmup.WarmupEpochs, warmup.WarmupFrom = 10, optim.WarmupFromUnscaled
	for name, want := range map[string]optim.Schedule{
		"unet2d-study": optim.StudySchedule(), "unet2d-study-tensorflow": optim.StudyScheduleTensorFlow(),
		"unet2d-study-pytorch": optim.StudySchedulePyTorch(), "unet2d-study-warmup": warmup,
	} {
		c, err := Named(name, "data.path=somewhere")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.Schedule); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		c.Name, c.Schedule = study.Name, study.Schedule
		if diff := cmp.Diff(study, c); diff != "" {
			t.Errorf("%s differs from unet2d-study by more than its schedule:\n%s", name, diff)
		}
	}
}

// TestSetAfterEpoch trains two workers with the study's PyTorch schedule and checks the
// learning rates of the epochs: lr, then 2·lr, then half of that one epoch after the milestone.
func TestSetAfterEpoch(t *testing.T) {
	c, err := Named("unet2d-study-laptop", "epochs=4", "data.count=12", "data.test_images=4", "batch=2", "data.height=16", "data.width=16",
		"optimizer.learning_rate=0.001",
		"schedule={scaling: linear, set_after_epoch: true, decay: [{epoch: 2, factor: 0.5}]}")
	if err != nil {
		t.Fatal(err)
	}
	res, err := trainAll(t, c, 2, WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []float64
	for _, e := range res[0].Epochs {
		got = append(got, e.LearningRate)
	}
	if diff := cmp.Diff([]float64{1e-3, 2e-3, 2e-3, 1e-3}, got); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
}

// TestLaptopTwins trains each laptop config for an epoch on few samples, and checks that its
// scores are finite.
func TestLaptopTwins(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, name := range twinned() {
		t.Run(name, func(t *testing.T) {
			set := []string{"epochs=1", "batch=4"}
			c, err := Named(name + "-laptop")
			if err != nil {
				t.Fatal(err)
			}
			switch c.Data.Kind {
			case data.KindFields:
				set = append(set, "data.samples=8", "data.test_samples=4", "accumulate=2")
			default:
				set = append(set, "data.count=20", "data.test_images=8")
			}
			if c, err = c.With(set...); err != nil {
				t.Fatal(err)
			}
			res, err := trainAll(t, c, 1, WorkerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			e := res[0].Epochs[0]
			if !(e.TrainLoss > 0) || !(e.ValLoss > 0) || math.IsInf(e.TrainLoss+e.ValLoss, 0) {
				t.Errorf("losses %g and %g", e.TrainLoss, e.ValLoss)
			}
			scored := []bool{!math.IsNaN(e.IoU), !math.IsNaN(e.ValAccuracy) && !math.IsNaN(e.Accuracy)}
			if want := []bool{c.Data.Task() == data.TaskSegmentation, c.Data.Task() == data.TaskClassification}; !slices.Equal(scored, want) {
				t.Errorf("%s has IoU %g, accuracy %g and %g", c.Data.Task(), e.IoU, e.Accuracy, e.ValAccuracy)
			}
		})
	}
}

// TestTwinsSettle checks that the laptop configs are large enough for four workers to reach
// the quality of one, as environment/benchmarks.md records: at least 100 optimizer steps, in
// half of which the weight of the running statistics' initial values falls below 1 %.
func TestTwinsSettle(t *testing.T) {
	for _, name := range twinned() {
		c, err := Named(name + "-laptop")
		if err != nil {
			t.Fatal(err)
		}
		samples := c.Data.Samples
		if samples == 0 {
			samples = c.Data.Count - c.Data.TestImages
		}
		steps := c.Epochs * (samples / (4 * c.Batch * c.batchesPerStep()))
		if steps < 100 {
			t.Errorf("%s: %d steps with 4 workers, want at least 100", c.Name, steps)
		}
		momentum := nn.BatchNormMomentum
		if c.Model.Kind == model.KindResNetV2 {
			momentum = 0.01
		}
		if c.Model.BatchNormMomentum > 0 {
			momentum = c.Model.BatchNormMomentum
		}
		if left := math.Pow(1-momentum, float64(steps)/2); left > 0.01 {
			t.Errorf("%s: after half of %d steps initial statistics have the weight %.2g in the running ones", c.Name, steps, left)
		}
	}
}

// TestDataFlag: --data replaces the folder of every kind of data.
func TestDataFlag(t *testing.T) {
	for _, c := range []struct{ config, kind, path, test string }{
		{"unet2d-cells", "pairs", "somewhere", ""},
		{"em-membrane", "pairs", "somewhere", ""},
		{"resnet50v2-cifar10", "cifar10", "somewhere", ""},
		{"base", "volumes", filepath.Join("somewhere", "train.h5"), filepath.Join("somewhere", "validation.h5")},
	} {
		got, err := Worker{Config: c.config, Data: "somewhere"}.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		if d := got.Data; d.Kind != c.kind || d.Path != c.path || d.TestPath != c.test {
			t.Errorf("%s: %s in %q and %q", c.config, d.Kind, d.Path, d.TestPath)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte("name: mine\nbatch: 4\noptimizer:\n  learning_rat: 0.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	wrong, broken := filepath.Join(t.TempDir(), "wrong.yaml"), filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(wrong, []byte("# a comment\nname: mine\nbatch: 4\noptimizer:\n  learning_rate: small\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(broken, []byte("name: mine\n\tbatch: 4\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		set  []string
		want []string // parts of the message
	}{
		{"unet2d-cell", nil, []string{"unet2d-cell", "did you mean unet2d-cells?", "em-membrane"}},
		{file, nil, []string{"mine.yaml", "line 4", `"optimizer.learning_rat"`, "did you mean learning_rate?"}},
		{"no-such-file.yaml", nil, []string{"no-such-file.yaml", "no such file"}},
		{"unet2d-cells", []string{"batches=3"}, []string{`"batches"`, "did you mean batch?"}},
		{"unet2d-cells", []string{"batch"}, []string{"use key=value"}},
		{"unet2d-cells", []string{"batch=many"}, []string{`set "batch=many": batch is "many": expected a whole number`}},
		{"unet2d-cells", []string{"batch=0"}, []string{"batch is 0", "at least 1"}},
		{"unet2d-cells", []string{"data.augment=yes"}, []string{"data.augment", "needs keys and values"}},
		{"unet2d-cells", []string{"seed=9007199254740993"}, []string{"seed is 9007199254740993, but run.json represents integers exactly only up to 2^53"}},
		{"unet2d-cells", []string{"data.data_seed=-9007199254740993"}, []string{"data.data_seed is -9007199254740993", "use at most 9007199254740992"}},
		{"unet2d-cells", []string{"engine.threads=0"}, []string{"threads is 0"}},
		{"unet2d-cells", []string{"engine.device=gpu"}, []string{`"gpu"`, "use cpu"}},
		{"unet2d-cells", []string{"optimizer.learning_rate=.nan"}, []string{"learning", "NaN"}},
		{"unet2d-cells", []string{"optimizer.learning_rate=-0.1"}, []string{"learning_rate is -0.1: use a number above 0"}},
		{"unet2d-cells", []string{"optimizer.learning_rate=0"}, []string{"learning_rate is 0: use a number above 0"}},
		{"unet2d-cells", []string{"optimizer.learning_rate=.inf"}, []string{"learning_rate is +Inf: use a number above 0"}},
		{"unet2d-cells", []string{"optimizer.learning_rate=fast"}, []string{`optimizer.learning_rate is "fast": expected a number`}},
		{"unet2d-cells", []string{"batch=2.5"}, []string{`batch is "2.5": expected a whole number`}},
		{"unet2d-cells", []string{"data.drop_last=maybe"}, []string{`data.drop_last is "maybe": expected true or false`}},
		{"unet2d-cells", []string{"schedule.decay=3"}, []string{`schedule.decay is "3": expected a list`}},
		{"unet2d-cells", []string{"name={a: 1}"}, []string{`name is keys and values: expected a text`}},
		{wrong, nil, []string{"wrong.yaml", `line 5: optimizer.learning_rate is "small": expected a number`}},
		{broken, nil, []string{"broken.yaml", "line 2"}},
		{"em-membrane", nil, []string{"data.path is empty", "--data DIR"}},
	} {
		_, err := Named(test.name, test.set...)
		if err == nil {
			t.Errorf("%s %v: no error", test.name, test.set)
			continue
		}
		for _, part := range test.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s %v: %q does not say %q", test.name, test.set, err, part)
			}
		}
	}
}

func TestOverrides(t *testing.T) {
	c, err := Named("unet2d-cells", "batch=7", "optimizer.learning_rate=0.5", "data.path='a: b'", "schedule.decay=[{epoch: 80, factor: 0.5}]", "batch=8")
	if err != nil {
		t.Fatal(err)
	}
	if c.Batch != 8 || c.Optimizer.LearningRate != 0.5 || c.Data.Path != "a: b" || len(c.Schedule.Decay) != 1 {
		t.Errorf("overrides did not arrive: %+v", c)
	}
}

// TestOverrideOfKind checks that a field of the model has its value also if it is set
// before the kind, which resets the other fields.
func TestOverrideOfKind(t *testing.T) {
	c, err := Named("unet2d-cells", "model.stem=cifar", "batch=4", "model.kind=resnet50v2")
	if err != nil || c.Model.Kind != "resnet50v2" || c.Model.Stem != "cifar" || c.Batch != 4 {
		t.Errorf("%+v, %v", c.Model, err)
	}
}

// TestOverrideWithNone: None resets a field to its default, whatever the config sets.
func TestOverrideWithNone(t *testing.T) {
	c, err := Named("unet2d-study-laptop", "optimizer.clip_norm=1", "optimizer={clip_norm: None, momentum: 0.5}", "schedule=None", "data.drop_last=null", "batch=None")
	if err != nil {
		t.Fatal(err)
	}
	if c.Optimizer.ClipNorm != 0 || c.Optimizer.Momentum != 0.5 || c.Schedule.Scaling != "" || c.Schedule.Decay != nil || c.Data.DropLast || c.Batch != DefaultConfig().Batch {
		t.Errorf("%+v", c)
	}
	// The default's sizes are a U-Net's.
	if c, err = Named("resnet50v2-cifar10-laptop", "model.base=None", "model.stem=None"); err != nil || c.Model.Base != 0 || c.Model.Stem != "" || c.Model.Kind != "resnetv2" {
		t.Errorf("%+v, %v", c.Model, err)
	}
}

func TestMergeKeys(t *testing.T) {
	c, err := Parse("merged", []byte("model: &m {base: 4}\nname: x\n"))
	if err != nil || c.Model.Base != 4 {
		t.Fatalf("base %d, %v", c.Model.Base, err)
	}
	_, err = Parse("merged", []byte("data:\n  <<: {hight: 3}\n"))
	if err == nil || !strings.Contains(err.Error(), "did you mean height?") {
		t.Errorf("unknown key behind a merge key: %v", err)
	}
}

// TestAnchors reads a list of configs in the form of the tutorial, each merged into the next.
// A value that a config sets takes precedence over a merged value.
func TestAnchors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list.yaml")
	text := `_common: &common
  epochs: 10
  data: &cells {kind: cells, count: 40, test_images: 2}
base: &base
  <<: *common
  batch: 8
  schedule: {scaling: sqrt, base_batch: 8, anneal: None}
short:
  <<: *base
  epochs: 4
  data: {<<: *cells, count: 10, path: None}
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Named(file+":short", "data.width=64", "data.path=None")
	if err != nil {
		t.Fatal(err)
	}
	d := c.Data
	if c.Name != "short" || c.Epochs != 4 || c.Batch != 8 || c.Schedule.BaseBatch != 8 || d.Count != 10 || d.TestImages != 2 || d.Width != 64 || d.Path != "" {
		t.Errorf("%+v", c)
	}
	for _, c := range []struct{ name, text, want string }{
		{file, "", "the file has several configs: use one of " + file + ":base, " + file + ":short"},
		{file + ":shot", "", `unknown config "shot" (did you mean short?): use one of base, short`},
		{"", "model: &m\n  kind: unet2d\n  <<: *m\n", "line 3: cycle: alias *m is used inside its own anchor &m (line 1): a config cannot be merged into itself"},
		{"", "a: &a\n  batch: 1\n  data: &d\n    <<: *a\n", "line 4: cycle: alias *a is used in &d inside its own anchor &a (line 1)"},
		{"", "a: &a [*a]\n", "cycle: alias *a"},
		{"", "batch: None\n", ""},
		{"", "[1, 2]\n", "line 1: a config needs keys and values, not a list"},
		{"", "batch: 2\n---\nbatch: 3\n", "line 2: unexpected second document after ---"},
		{"", "---\nbatch: 2\n...\n", ""},
		{"", "batch: 'None'\n", `batch is "None": expected a whole number`},
		{"", "data: {<<: [{count: 3}, {hight: 3}]}\n", "did you mean height?"},
	} {
		var err error
		if c.name != "" {
			_, err = Named(c.name)
		} else {
			_, err = parseNamedConfig("list.yaml", "a", []byte(c.text))
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s%q: got %v, want %q", c.name, c.text, err, c.want)
		}
	}
}

func TestTimeouts(t *testing.T) {
	for _, tt := range []struct {
		set              string
		join, collective time.Duration
		err              string
	}{
		{"epochs=1", 0, 0, ""}, // the defaults
		{"timeout_collective=null", 0, 0, ""},
		{"timeout_collective=90s", 0, 90 * time.Second, ""},
		{"timeout_collective=2m30s", 0, 150 * time.Second, ""},
		{"timeout_collective=-1s", 0, 0, `timeout_collective is "-1s": use a positive duration, such as 30s or 5m`},
		{"timeout_collective=0s", 0, 0, "use a positive duration"},
		{"timeout_collective=5", 0, 0, `timeout_collective is "5"`},
		{"timeout_collective=soon", 0, 0, `timeout_collective is "soon"`},
		{"timeout_join=null", 0, 0, ""},
		{"timeout_join=10m", 10 * time.Minute, 0, ""},
		{"timeout_join=-1s", 0, 0, `timeout_join is "-1s": use a positive duration, such as 30s or 5m`},
	} {
		c, err := tiny().With(tt.set)
		o := c.JoinOptions()
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %q", tt.set, err, tt.err)
			}
		case err != nil || o.Timeout != tt.join || o.Group.Timeout != tt.collective:
			t.Errorf("%s: %v, %v, %v, want %v and %v", tt.set, o.Timeout, o.Group.Timeout, err, tt.join, tt.collective)
		}
	}
	// The worker's flags set the same keys, but Set takes precedence.
	w := Worker{Config: "unet2d-cells", Seed: 1, TimeoutJoin: 2 * time.Minute, TimeoutCollective: time.Minute}
	if c, err := w.Resolve(); err != nil || c.TimeoutJoin != "2m0s" || c.TimeoutCollective != "1m0s" {
		t.Errorf("flags: %q, %q, %v", c.TimeoutJoin, c.TimeoutCollective, err)
	}
	w.Set = []string{"timeout_join=8s", "timeout_collective=7s"}
	if c, err := w.Resolve(); err != nil || c.TimeoutJoin != "8s" || c.TimeoutCollective != "7s" {
		t.Errorf("set: %q, %q, %v", c.TimeoutJoin, c.TimeoutCollective, err)
	}
}

// TestJoinTimeout: a rank whose peers do not start within timeout_join names them and the key, and a
// rank that does not reach rank 0 names the key.
func TestJoinTimeout(t *testing.T) {
	t.Parallel()
	port, err := rendezvous.FindFreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg := tiny()
	cfg.TimeoutJoin = "10ms"
	for rank, want := range []string{
		"not all of 3 ranks joined within 10ms: missing ranks 1, 2; if ranks start later than that, raise timeout_join (--timeout-join)",
		"rank 0 was not reached at 127.0.0.1:", // a port on which no process listens any more
	} {
		p := trainingProcess{cfg: cfg, replicas: 1, env: rendezvous.Env{
			Rank: rank, World: 3, LocalRank: rank, LocalWorld: 3, MasterAddr: "127.0.0.1", MasterPort: port, Token: "secret",
		}}
		err := p.run(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "; if ranks start later than that, raise timeout_join (--timeout-join)") {
			t.Errorf("rank %d: got %v, want %q", rank, err, want)
		}
	}
}
