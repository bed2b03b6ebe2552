package train

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lockstep/pkg/runs"
)

// FuzzParse: Parse returns an error or a valid config for every file, and run.json represents
// the config without loss.
func FuzzParse(f *testing.F) {
	for _, file := range shippedConfigPaths() {
		text, err := shippedConfigs.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("batch: [1, 2]\n"))
	f.Add([]byte("optimizer: {learning_rate: .nan}\n"))
	f.Add([]byte("a: &a {b: *a}\n"))
	f.Add([]byte("model: &m\n  <<: *m\n"))
	f.Add([]byte("one: &one {batch: 3}\ntwo: {<<: *one, epochs: None}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseNamedConfig("fuzz.yaml", "two", text)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("parsed, but not valid: %v", err)
		}
		if rate := c.Optimizer.LearningRate; math.IsNaN(rate) || math.IsInf(rate, 0) {
			t.Fatalf("learning rate %v is accepted", rate)
		}
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatalf("run.json cannot keep it: %v", err)
		}
		var doc map[string]any
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		again, err := ConfigOf(runs.Info{Config: doc})
		if err != nil {
			t.Fatalf("run.json does not give it back: %v", err)
		}
		if d := cmp.Diff(c, again, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("run.json gives another config back (-wrote +read)\n%s", d)
		}
	})
}
