package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"lockstep/pkg/data"
)

// mayDifferByRank are the config keys that may differ between the ranks of a run: the paths
// of the data and the device. The folder in data.stage may differ too, but it must be set
// on all ranks or on none.
var mayDifferByRank = [...]string{"data.path", "data.test_path", "engine.device"}

// sharedConfig returns the values in the config doc that must be equal on all ranks of a
// run, by key, such as "data.augment.flip".
func sharedConfig(doc map[string]any) map[string]any {
	flat := map[string]any{}
	flatten(doc, "", flat)
	for _, key := range mayDifferByRank {
		delete(flat, key)
	}
	if folder, ok := flat["data.stage"].(string); ok {
		flat["data.stage"] = folder != ""
	}
	return flat
}

// flatten adds to flat the values in doc, with the path at before their keys.
func flatten(doc map[string]any, at string, flat map[string]any) {
	for k, v := range doc {
		if inner, ok := v.(map[string]any); ok {
			flatten(inner, at+k+".", flat)
		} else {
			flat[at+k] = v
		}
	}
}

// hashOf returns the SHA-256 of values, which come from JSON.
func hashOf(values map[string]any) ([sha256.Size]byte, []byte, error) {
	text, err := json.Marshal(values) // with its keys in order
	return sha256.Sum256(text), text, err
}

// ConfigHash returns the hash of a config that is recorded in steps files. doc is the
// config in run.json; keys that may differ between ranks do not affect the hash.
func ConfigHash(doc map[string]any) (string, error) {
	hash, _, err := hashOf(sharedConfig(doc))
	return hex.EncodeToString(hash[:]), err
}

// sameConfig returns an error on every rank if the config of one differs from that
// of rank 0. All ranks must call it.
func (t *Trainer) sameConfig(ctx context.Context) error {
	doc, err := t.cfg.document()
	if err != nil {
		return err
	}
	return t.same(ctx, "was given another config than", sharedConfig(WithDefaultStrategy(doc)),
		"give all workers the same config (only "+strings.Join(mayDifferByRank[:], ", ")+" and the folder of data.stage may differ)")
}

// sameData returns an error on every rank if the data of one differ from those of
// rank 0, wherever each has them. All ranks must call it.
func (t *Trainer) sameData(ctx context.Context) error {
	t.dataHash = fingerprint(t.samples.Train, t.samples.Test)
	return t.same(ctx, "reads other data than", map[string]any{
		"training samples": float64(t.samples.Train.Len()), "held-out samples": float64(t.samples.Test.Len()), "fingerprint": t.dataHash,
	}, "give all workers the same data")
}

// same returns an error on every rank if the values of one rank differ from those of rank
// 0. values must come from JSON. differs and advice are parts of the error message. All
// ranks must call it.
func (t *Trainer) same(ctx context.Context, differs string, values map[string]any, advice string) error {
	size, rank := t.group.Size(), t.group.Rank()
	if size == 1 {
		return nil
	}
	hash, text, err := hashOf(values)
	if err != nil {
		return err
	}
	const words = sha256.Size / 4
	all := make([]float64, size*words)
	for i := range words {
		all[rank*words+i] = float64(binary.BigEndian.Uint32(hash[4*i:]))
	}
	if err := t.sum(ctx, all); err != nil {
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
	theirs, err := t.textOfOne(ctx, string(text))
	if err != nil {
		return err
	}
	if rank == 0 {
		err = otherValues(others, differs, values, theirs, advice)
	}
	return t.agree(ctx, err)
}

// otherValues returns the error that lists the differing keys. values are those of rank 0;
// text is the JSON of the values of the first rank in others.
func otherValues(others []int, differs string, values map[string]any, text, advice string) error {
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
			list = append(list, fmt.Sprintf("%s is %v there, %v on rank 0", key, shown(theirs[key]), shown(values[key])))
		}
	}
	first := ""
	if len(others) > 1 {
		first = fmt.Sprintf(" (the first of %d ranks)", len(others))
	}
	return fmt.Errorf("rank %d%s %s rank 0: %s; %s", others[0], first, differs, strings.Join(list, "; "), advice)
}

// A fingerprint reads at most fingerprintSamples samples of each set, with at most
// fingerprintValues values together.
const (
	fingerprintSamples = 8
	fingerprintValues  = 1 << 22
)

// fingerprint returns a hash of the numbers of samples in sets, of their shapes, and of some
// samples spread over each set.
func fingerprint(sets ...data.Dataset) string {
	h := sha256.New()
	for _, set := range sets {
		image, target := elements(set.ImageShape()), elements(set.TargetShape())
		fmt.Fprintln(h, set.Len(), set.ImageShape(), set.TargetShape())
		n := min(set.Len(), fingerprintSamples, max(1, fingerprintValues/max(1, image+target)))
		values := make([]float32, image+target)
		var bits [4]byte
		for i := range n {
			// Training reports the error if the sample is used.
			if err := set.Get(i*(set.Len()-1)/max(1, n-1), values[:image], values[image:]); err != nil {
				fmt.Fprintln(h, "not readable")
				continue
			}
			for _, v := range values {
				binary.LittleEndian.PutUint32(bits[:], math.Float32bits(v))
				_, _ = h.Write(bits[:])
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
