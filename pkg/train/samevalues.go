package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// keysThatMayDiffer are the config keys that may differ between ranks: the data's paths and the
// device (see checkSameConfig for its kind). The folder in data.stage may differ too, but must be
// set on all ranks or on none.
var keysThatMayDiffer = [...]string{"data.path", "data.test_path", "engine.device"}

// sharedConfig returns the values in the config doc that must be equal on all ranks, by key, such
// as "data.augment.flip".
func sharedConfig(doc map[string]any) map[string]any {
	flat := map[string]any{}
	flatten(doc, "", flat)
	for _, key := range keysThatMayDiffer {
		delete(flat, key)
	}
	if folder, ok := flat["data.stage"].(string); ok {
		flat["data.stage"] = folder != ""
	}
	return flat
}

// flatten adds the values in doc and its nested maps to flat. Their keys are at followed by the
// path in doc.
func flatten(doc map[string]any, at string, flat map[string]any) {
	for k, v := range doc {
		if inner, ok := v.(map[string]any); ok {
			flatten(inner, at+k+".", flat)
		} else {
			flat[at+k] = v
		}
	}
}

func hashJSON(values map[string]any) ([sha256.Size]byte, []byte, error) {
	text, err := json.Marshal(values) // sorts the keys
	return sha256.Sum256(text), text, err
}

// ConfigHash returns the hash in steps-<rank>.jsonl of doc, the config in run.json. Keys that may
// differ between ranks do not affect it.
func ConfigHash(doc map[string]any) (string, error) {
	hash, _, err := hashJSON(sharedConfig(doc))
	return hex.EncodeToString(hash[:]), err
}

// checkSameConfig returns an error on every rank if a rank's config differs from rank 0's in a key
// that must be equal. All ranks must call it.
func (t *Trainer) checkSameConfig(ctx context.Context) error {
	doc, err := t.cfg.jsonDocument()
	if err != nil {
		return err
	}
	shared := sharedConfig(withStrategySettings(doc))
	// Engines of different kinds exchange different values. The kind is no part of ConfigHash, which
	// run folders have recorded without it.
	kind, _, _ := strings.Cut(t.cfg.Engine.Device, ":")
	shared["engine.device"] = kind
	return t.checkSameValues(ctx, "has another config than", shared,
		"give all workers the same config (only "+strings.Join(keysThatMayDiffer[:2], ", ")+", the number of a GPU in engine.device and the folder of data.stage may differ)")
}

// checkSameValues returns an error on every rank if any rank's values differ from rank 0's. values
// must have the types that json.Unmarshal produces. differs and advice are parts of the error
// message. All ranks must call it.
func (t *Trainer) checkSameValues(ctx context.Context, differs string, values map[string]any, advice string) error {
	size, rank := t.group.Size(), t.group.Rank()
	if size == 1 {
		return nil
	}
	hash, text, err := hashJSON(values)
	if err != nil {
		return err
	}
	const words = sha256.Size / 4
	all := make([]float64, size*words)
	for i := range words {
		all[rank*words+i] = float64(binary.BigEndian.Uint32(hash[4*i:]))
	}
	if err := t.allReduce(ctx, all); err != nil {
		return fmt.Errorf("compare the ranks' configs: %w", err)
	}
	var others []int
	for r := 1; r < size; r++ {
		if !slices.Equal(all[r*words:(r+1)*words], all[:words]) {
			others = append(others, r)
		}
	}
	if len(others) == 0 {
		return nil
	}
	if rank != others[0] {
		text = nil
	}
	theirs, err := t.shareText(ctx, string(text))
	if err != nil {
		return err
	}
	if rank == 0 {
		err = newDifferenceError(others, differs, values, theirs, advice)
	}
	return t.shareRank0Error(ctx, err)
}

// newDifferenceError returns the error that lists the keys whose values differ. others are the
// ranks whose values differ from values, rank 0's. text is the JSON of the first of them.
func newDifferenceError(others []int, differs string, values map[string]any, text, advice string) error {
	var theirs map[string]any
	if err := json.Unmarshal([]byte(text), &theirs); err != nil {
		return fmt.Errorf("read config of rank %d: %w", others[0], err)
	}
	shown := func(v any) any {
		if v == nil {
			return "not set"
		}
		return v
	}
	keys := maps.Clone(theirs)
	maps.Copy(keys, values)
	var list []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !reflect.DeepEqual(values[key], theirs[key]) {
			list = append(list, fmt.Sprintf("%s is %v there and %v on rank 0", key, shown(theirs[key]), shown(values[key])))
		}
	}
	first := ""
	if len(others) > 1 {
		first = fmt.Sprintf(" (the first of %d such ranks)", len(others))
	}
	return fmt.Errorf("rank %d%s %s rank 0: %s; %s", others[0], first, differs, strings.Join(list, "; "), advice)
}
