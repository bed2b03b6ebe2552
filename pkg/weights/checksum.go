package weights

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"maps"
	"slices"
)

// Keys of the metadata that Write adds, and that Read checks and takes out.
const (
	tensorSumsKey   = "crc32c_tensors"  // JSON: the checksum of each tensor by its name
	metadataSumsKey = "crc32c_metadata" // of all other metadata
)

// DamagedError reports a file that is no whole safetensors file, or whose
// content is not what was written.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string { return "read weights " + e.Path + ": " + e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

// newSum returns a CRC-32C, which notices every change of up to 32 neighboring
// bits and misses other damage once in 2³².
func newSum() hash.Hash32 { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }

// add puts texts into h, each with its length before it.
func add(h hash.Hash32, texts ...string) {
	for _, text := range texts {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))) // a hash does not fail
		_, _ = h.Write([]byte(text))
	}
}

func hex(h hash.Hash32) string { return fmt.Sprintf("%08x", h.Sum32()) }

// tensorSum begins the checksum of a tensor; its bytes follow.
func tensorSum(name, dtype string, shape []int) hash.Hash32 {
	h := newSum()
	add(h, name, dtype, fmt.Sprint(shape))
	return h
}

func metadataSum(metadata map[string]string) string {
	h := newSum()
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		add(h, key, metadata[key])
	}
	return hex(h)
}

// withSums returns metadata with the checksums of the tensors and of itself.
func withSums(tensors []Tensor, metadata map[string]string) (map[string]string, error) {
	sums := make(map[string]string, len(tensors))
	chunk := make([]byte, 0, 1<<16)
	for _, t := range tensors {
		h := tensorSum(t.Name, t.DType(), t.Shape)
		if err := encodeValues(h, t, chunk); err != nil {
			return nil, err
		}
		sums[t.Name] = hex(h)
	}
	text, err := json.Marshal(sums)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	maps.Copy(all, metadata)
	delete(all, metadataSumsKey)
	all[tensorSumsKey] = string(text)
	all[metadataSumsKey] = metadataSum(all)
	return all, nil
}

// checkMetadata compares metadata with its checksum and takes the checksums out
// of it. sums are those of the tensors; nil where the file has none, because
// another program or an earlier version wrote it.
func checkMetadata(metadata map[string]string) (sums map[string]string, err error) {
	want, has := metadata[metadataSumsKey]
	text, hasSums := metadata[tensorSumsKey]
	if !has && !hasSums {
		return nil, nil
	}
	delete(metadata, metadataSumsKey)
	if got := metadataSum(metadata); got != want {
		return nil, fmt.Errorf("checksum of the metadata is %s, want %q: they changed after they were written", got, want)
	}
	delete(metadata, tensorSumsKey)
	if err := json.Unmarshal([]byte(text), &sums); err != nil {
		return nil, fmt.Errorf("checksums of the tensors: %w", err)
	}
	if sums == nil {
		return nil, errors.New("checksums of the tensors are missing")
	}
	return sums, nil
}

// checkTensor compares a tensor's bytes with its checksum.
func checkTensor(name string, e entry, data []byte, sums map[string]string) error {
	h := tensorSum(name, e.DType, e.Shape)
	_, _ = h.Write(data[(*e.Offsets)[0]:(*e.Offsets)[1]])
	if got, want := hex(h), sums[name]; got != want {
		return fmt.Errorf("checksum is %s, want %q: its values changed after they were written", got, want)
	}
	return nil
}
