package train

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestShippedConfigsAreValid(t *testing.T) {
	names := Names()
	if diff := cmp.Diff([]string{"em-membrane", "unet2d-cells"}, names); diff != "" {
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

// TestAnchors: the tutorial's way to write a list of configs, one merged into the
// next; what a member sets wins over what it merges.
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
		{file, "", "it holds several configs: name one of them: " + file + ":base, :short"},
		{file + ":shot", "", `it has no config "shot" (did you mean short?): use one of base, short`},
		{"", "model: &m\n  kind: unet2d\n  <<: *m\n", "line 3: a cycle: *m stands in &m (line 1), which is itself: a config cannot be merged into itself"},
		{"", "a: &a\n  batch: 1\n  data: &d\n    <<: *a\n", "line 4: a cycle: *a stands in &d in &a (line 1)"},
		{"", "a: &a [*a]\n", "a cycle"},
		{"", "batch: None\n", ""},
		{"", "batch: 'None'\n", `batch is "None": expected a whole number`},
		{"", "data: {<<: [{count: 3}, {hight: 3}]}\n", "did you mean height?"},
	} {
		var err error
		if c.name != "" {
			_, err = Named(c.name)
		} else {
			_, err = parseMember("list.yaml", "a", []byte(c.text))
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s%q: got %v, want %q", c.name, c.text, err, c.want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"kitten", "sitting", 3}, {"abc", "", 3}, {"flaw", "lawn", 2}} { // the textbook's examples (Wagner and Fischer 1974)
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
