package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// keysChangeableOnResume are the config keys that affect neither the results of the training nor its speed.
var keysChangeableOnResume = [...]string{"name", "epochs", "checkpoint", "data.path", "data.test_path", "data.stage", "timeout_join", "timeout_collective"}

// readResumable reads the run in the run folder; nil if there is none. It returns an error if that
// run has another number of workers, another config or other data. Every rank calls it, so all end
// with the same error.
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
	if _, err := StrategyOf(before.Info.Config); err != nil {
		return nil, fmt.Errorf("resume %s: %w", t.options.Dir, err)
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

// jsonDocument returns c as run.json stores it.
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

// withStrategySettings returns doc, the config in run.json, with the strategy's name, which run.json omits
// for the default, and all its options as separate keys, "strategy" and for example "strategy.steps".
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

// StrategyOf returns the strategy in config, the config in run.json. If that has an option that was
// removed, the error wraps a *strategy.RemovedOptionError, and c lacks the option.
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

// compareConfigs returns the keys whose values differ, without keysChangeableOnResume. A key that one
// config lacks has no value there if optionalKeys lists it; otherwise an earlier version of Lockstep wrote
// the config, and the key is ignored. prefix is the path of both configs, with a dot at its end, or "".
func compareConfigs(recorded, current map[string]any, prefix string) (all []Difference) {
	keys := maps.Clone(recorded)
	maps.Copy(keys, current)
	for k := range keys {
		path := prefix + k
		before, recordedHas := recorded[k]
		now, currentHas := current[k]
		if slices.Contains(keysChangeableOnResume[:], path) {
			continue
		}
		if !recordedHas || !currentHas {
			if optionalKeys()[path] {
				all = append(all, Difference{path, cmp.Or(before, any("not set")), cmp.Or(now, any("not set"))})
			}
			continue
		}
		a, inner := before.(map[string]any)
		b, both := now.(map[string]any)
		switch {
		case inner && both && path != "data.mask_values":
			all = append(all, compareConfigs(a, b, path+".")...)
		case !reflect.DeepEqual(before, now):
			all = append(all, Difference{path, before, now})
		}
	}
	return all
}

// optionalKeys returns the config keys, such as "data.range", that run.json omits when they have no
// value. Keys that a run sets itself are not among them: data.reading, of which no value means the
// reading of earlier versions, and data.input_channels.
var optionalKeys = sync.OnceValue(func() map[string]bool {
	keys := map[string]bool{}
	var add func(t reflect.Type, prefix string)
	add = func(t reflect.Type, prefix string) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case options != "":
				keys[prefix+name] = true
			case f.Type.Kind() == reflect.Struct:
				add(f.Type, prefix+name+".")
			}
		}
	}
	add(reflect.TypeFor[Config](), "")
	delete(keys, "data.reading")
	delete(keys, "data.input_channels")
	delete(keys, "strategy") // see withStrategySettings
	return keys
})
