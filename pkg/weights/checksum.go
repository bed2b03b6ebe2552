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

// Metadata keys of the checksums that Write adds, and that Read verifies and removes.
const (
	tensorSumsKey   = "crc32c_tensors"  // JSON object: checksum of each tensor by name
	metadataSumsKey = "crc32c_metadata" // checksum of all other metadata
)

// DamagedError reports a file that is not a complete safetensors file, or whose content
// changed after it was written.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string { return "read weights " + e.Path + ": " + e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

// newChecksum returns a CRC-32C hash. It detects every change that is limited to 32
// consecutive bits, and any other change with probability 1 − 2⁻³².
func newChecksum() hash.Hash32 { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }

func hashStrings(h hash.Hash32, texts ...string) {
	for _, text := range texts {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))) // Write of a hash never fails
		_, _ = h.Write([]byte(text))
	}
}

func formatChecksum(h hash.Hash32) string { return fmt.Sprintf("%08x", h.Sum32()) }

// newTensorChecksum returns a hash of a tensor's name, dtype and shape, to which the caller
// must add the tensor's bytes.
func newTensorChecksum(name, dtype string, shape []int) hash.Hash32 {
	h := newChecksum()
	hashStrings(h, name, dtype, fmt.Sprint(shape))
	return h
}

func metadataChecksum(metadata map[string]string) string {
	h := newChecksum()
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		hashStrings(h, key, metadata[key])
	}
	return formatChecksum(h)
}

// metadataWithChecksums returns a copy of metadata with checksums of tensors and metadata.
func metadataWithChecksums(tensors []Tensor, metadata map[string]string) (map[string]string, error) {
	sums := make(map[string]string, len(tensors))
	chunk := make([]byte, 0, 1<<16)
	for _, t := range tensors {
		h := newTensorChecksum(t.Name, t.DType(), t.Shape)
		if err := encodeValues(h, t, chunk); err != nil {
			return nil, err
		}
		sums[t.Name] = formatChecksum(h)
	}
	text, err := json.Marshal(sums)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	maps.Copy(all, metadata)
	delete(all, metadataSumsKey)
	all[tensorSumsKey] = string(text)
	all[metadataSumsKey] = metadataChecksum(all)
	return all, nil
}

// extractChecksums verifies the checksum of metadata and removes all checksums from it. It
// returns the tensors' checksums by name, or nil if another program or an
// earlier version wrote the file.
func extractChecksums(metadata map[string]string) (sums map[string]string, err error) {
	want, has := metadata[metadataSumsKey]
	text, hasSums := metadata[tensorSumsKey]
	if !has && !hasSums {
		return nil, nil
	}
	delete(metadata, metadataSumsKey)
	if got := metadataChecksum(metadata); got != want {
		return nil, fmt.Errorf("metadata checksum is %s, want %q: the metadata changed after it was written", got, want)
	}
	delete(metadata, tensorSumsKey)
	if err := json.Unmarshal([]byte(text), &sums); err != nil {
		return nil, fmt.Errorf("parse tensor checksums: %w", err)
	}
	if sums == nil {
		return nil, errors.New("tensor checksums are missing: the file is damaged")
	}
	return sums, nil
}

// verifyTensorChecksum returns an error if the checksum of a tensor differs from its checksum in
// sums.
func verifyTensorChecksum(name string, e tensorEntry, data []byte, sums map[string]string) error {
	h := newTensorChecksum(name, e.DType, e.Shape)
	_, _ = h.Write(data[(*e.Offsets)[0]:(*e.Offsets)[1]])
	if got, want := formatChecksum(h), sums[name]; got != want {
		return fmt.Errorf("checksum is %s, want %q: the values changed after they were written", got, want)
	}
	return nil
}
