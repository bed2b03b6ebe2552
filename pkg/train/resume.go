package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// keysChangeableOnResume are the config keys that may change when a run is resumed. They
// affect neither the results of the training nor its speed.
var keysChangeableOnResume = [...]string{"name", "epochs", "checkpoint", "data.path", "data.test_path", "data.stage", "timeout_join", "timeout_collective"}

// readResumable reads the run in the run folder. It returns an error if the run has another
// number of workers, another config or other data than this run, and nil if there is no run. Every
// rank calls it, so all ranks end with the same error.
func (t *Trainer) readResumable() (*runs.Run, error) {
	before, err := runs.Read(t.options.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the run was never started
	}
	if err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	if n := before.Info.Workers; n != t.group.Size() {
		return nil, fmt.Errorf("resume %s: the run was started with %s, not with %d: use the same number, or another run folder", t.options.Dir, english.Count(n, "worker"), t.group.Size())
	}
	now, err := t.cfg.jsonDocument()
	if err != nil {
		return nil, err
	}
	if d := Differences(before.Info.Config, now); len(d) > 0 {
		return nil, fmt.Errorf("resume %s: the run was started with %s %v, not %v: use the config of the run (only %s may change), or another run folder",
			t.options.Dir, d[0].Key, d[0].Was, d[0].Now, strings.Join(keysChangeableOnResume[:], ", "))
	}
	return &before, t.checkDataUnchanged(before)
}

// jsonDocument returns c in the form in which run.json stores it.
func (c Config) jsonDocument() (map[string]any, error) {
	c.Data = c.Data.Recorded()
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode config: %w", err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("encode config: %w", err)
	}
	return doc, nil
}

// withStrategySettings returns doc, the config in run.json, with the name of the strategy and
// the values of all its options as separate keys, "strategy" and for example
// "strategy.steps". In run.json, the default strategy is omitted.
func withStrategySettings(doc map[string]any) map[string]any {
	if len(doc) == 0 {
		return doc
	}
	c, err := StrategyOf(doc)
	if err != nil {
		return doc // of another version of Lockstep
	}
	doc = maps.Clone(doc)
	maps.Copy(doc, c.Settings())
	return doc
}

// StrategyOf returns the strategy in config, the config in run.json.
func StrategyOf(config map[string]any) (c strategy.Config, err error) {
	v, recorded := config["strategy"]
	if !recorded {
		return c, nil
	}
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return c, fmt.Errorf("read strategy in config: %w", err)
	}
	return c, nil
}

// compareConfigs returns the keys whose values differ between two configs, except the keys
// in keysChangeableOnResume. It ignores keys that recorded does not have, because an earlier
// version of Lockstep, without these keys, may have written it. prefix is the path of both
// configs, with a dot at its end, or "".
func compareConfigs(recorded, current map[string]any, prefix string) (all []Difference) {
	for k, v := range current {
		before, ok := recorded[k]
		if !ok || slices.Contains(keysChangeableOnResume[:], prefix+k) {
			continue
		}
		a, inner := before.(map[string]any)
		b, both := v.(map[string]any)
		switch {
		case inner && both:
			all = append(all, compareConfigs(a, b, prefix+k+".")...)
		case !reflect.DeepEqual(before, v):
			all = append(all, Difference{prefix + k, before, v})
		}
	}
	return all
}
