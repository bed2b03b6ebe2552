package train

import (
	"cmp"
	"context"
	"encoding/hex"
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
	"lockstep/pkg/train/internal/checkpoint"
	"lockstep/pkg/train/internal/ranks"
)

// keysChangeableOnResume lists the config keys that affect neither the results of the training nor
// its speed.
var keysChangeableOnResume = [...]string{"name", "epochs", "checkpoint", "data.path", "data.test_path", "data.stage", "timeout_join", "timeout_collective"}

// readResumableRun reads the run in the run folder. It returns nil if there is none, and an error
// if the run has another number of workers, another config or other data. Every rank calls it, so
// all end with the same error.
func (t *Trainer) readResumableRun() (*runs.Run, error) {
	before, err := runs.Read(t.options.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the run was never started
	}
	if err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	if n := before.Info.Workers; n != t.group.Size() {
		return nil, fmt.Errorf("resume %s: the run was started with %s, not with %d: use the same number, or another run folder", t.options.Dir, english.FormatCount(n, "worker"), t.group.Size())
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

// withStrategySettings returns doc, the config in run.json, with the strategy's name and all its
// options as separate keys, such as "strategy" and "strategy.steps". The name is set even if
// run.json omits it, as it does for the default strategy.
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

// StrategyOf returns the strategy in a config from run.json. If the config has an option that was
// removed from Lockstep, the error wraps a *strategy.RemovedOptionError, and c lacks the option.
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

// compareConfigs returns the keys whose values differ between two configs, except
// keysChangeableOnResume. If only one config has a key, it differs if optionalConfigKeys contains the
// key. Otherwise the key is ignored, because an earlier version of Lockstep wrote the config.
// prefix is the path of both configs, with a dot at its end, or "".
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
			if optionalConfigKeys()[path] {
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

// optionalConfigKeys returns the config keys, such as "data.range", that run.json omits when they have no
// value. It does not contain keys that a run sets itself: data.input_channels, and data.reading,
// for which no value means the reading rules of earlier versions.
var optionalConfigKeys = sync.OnceValue(func() map[string]bool {
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

// perRankConfigKeys are the config keys that may differ between ranks: the data's paths and the
// device (see checkSameConfig for its kind). The folder in data.stage may differ too, but must be
// set on all ranks or on none.
var perRankConfigKeys = [...]string{"data.path", "data.test_path", "engine.device"}

// sharedConfigValues returns the values in doc, the config in run.json, that must be equal on all ranks.
// Keys are paths, such as "data.augment.flip".
func sharedConfigValues(doc map[string]any) map[string]any {
	flat := map[string]any{}
	flattenConfig(doc, "", flat)
	for _, key := range perRankConfigKeys {
		delete(flat, key)
	}
	if folder, ok := flat["data.stage"].(string); ok {
		flat["data.stage"] = folder != ""
	}
	return flat
}

// flattenConfig adds the values in doc and its nested maps to flat. The key of a value is its path
// in doc, prefixed by at.
func flattenConfig(doc map[string]any, at string, flat map[string]any) {
	for k, v := range doc {
		if inner, ok := v.(map[string]any); ok {
			flattenConfig(inner, at+k+".", flat)
		} else {
			flat[at+k] = v
		}
	}
}

// ConfigHash returns the hash of doc, the config in run.json, that is recorded in
// steps-<rank>.jsonl. Keys that may differ between ranks do not affect it.
func ConfigHash(doc map[string]any) (string, error) {
	hash, _, err := ranks.HashJSON(sharedConfigValues(doc))
	return hex.EncodeToString(hash[:]), err
}

// checkSameConfig returns an error on every rank if any rank's config differs from rank 0's in a
// key that must be equal. All ranks must call it.
func (t *Trainer) checkSameConfig(ctx context.Context) error {
	doc, err := t.cfg.jsonDocument()
	if err != nil {
		return err
	}
	shared := sharedConfigValues(withStrategySettings(doc))
	// Engines of different kinds exchange different values. The kind is no part of ConfigHash, which
	// run folders have recorded without it.
	kind, _, _ := strings.Cut(t.cfg.Engine.Device, ":")
	shared["engine.device"] = kind
	return ranks.CheckSameValues(ctx, t.group, "has another config than", shared,
		"give all workers the same config (only "+strings.Join(perRankConfigKeys[:2], ", ")+", the number of a GPU in engine.device and the folder of data.stage may differ)")
}

// lockRunFolder locks the run folder and its checkpoint folder against other processes, on rank 0.
// If isNew is set, it renames checkpoints of other runs. A failure results in an error on every
// rank.
func (t *Trainer) lockRunFolder(ctx context.Context, isNew bool) (err error) {
	if t.options.Dir == "" {
		return nil
	}
	if t.group.Rank() == 0 {
		if t.lock, err = runs.Acquire(t.options.Dir, t.options.Resume); err == nil {
			err = checkpoint.ClaimFolder(ctx, t.options.Dir)
		}
		if err == nil && isNew {
			var notes []string
			notes, err = checkpoint.RenameFromOtherRuns(t.options.Dir)
			t.notes = append(t.notes, notes...)
		}
	}
	return ranks.ShareRank0Error(ctx, t.group, err)
}

// checkNotLocked returns a *runs.OwnedError if another process has locked the run folder dir. It
// only makes a worker fail early; lockRunFolder is what excludes other processes.
func checkNotLocked(dir string) error {
	owner, alive, err := runs.OwnerOf(dir)
	if err != nil || !alive {
		return err
	}
	return &runs.OwnedError{Dir: dir, Owner: owner}
}
