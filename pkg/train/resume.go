package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// mayDiffer are the keys of a config that a run may change when it is resumed:
// they decide neither what is trained nor how fast an epoch is.
var mayDiffer = [...]string{"name", "epochs", "checkpoint", "data.path", "data.test_path", "data.stage", "timeout_collective"}

// checkResumed refuses to go on with a run that was made in another way than
// this one. Every rank looks, so that all end with the same error.
func (t *Trainer) checkResumed() error {
	before, err := runs.Read(t.options.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it never began
	}
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	if n := before.Info.Workers; n != t.group.Size() {
		return fmt.Errorf("resume %s: it was begun with %s, not with %d: use as many, or another run folder", t.options.Dir, english.Count(n, "worker"), t.group.Size())
	}
	now, err := t.cfg.document()
	if err != nil {
		return err
	}
	if d := Differences(before.Info.Config, now); len(d) > 0 {
		return fmt.Errorf("resume %s: it was begun with %s %v, not %v: use the config that it was begun with (only %s may change), or another run folder",
			t.options.Dir, d[0].Key, d[0].Was, d[0].Now, strings.Join(mayDiffer[:], ", "))
	}
	return nil
}

// document is c as run.json keeps it.
func (c Config) document() (map[string]any, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write config: %w", err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("write config: %w", err)
	}
	return doc, nil
}

// differences lists the keys whose values differ. Keys that an earlier version
// did not have count as equal.
func differences(was, is map[string]any, at string) (all []Difference) {
	for k, v := range is {
		before, ok := was[k]
		if !ok || slices.Contains(mayDiffer[:], at+k) {
			continue
		}
		a, inner := before.(map[string]any)
		b, both := v.(map[string]any)
		switch {
		case inner && both:
			all = append(all, differences(a, b, at+k+".")...)
		case !reflect.DeepEqual(before, v):
			all = append(all, Difference{at + k, before, v})
		}
	}
	return all
}
