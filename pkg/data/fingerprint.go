package data

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockstep/pkg/data/internal/filehash"
	"lockstep/pkg/data/internal/window"
)

// Fingerprint identifies the content of training and test data. Two fingerprints are equal if the
// samples come from files with the same names and contents, in any folder, or from the same
// generator, and the settings are the same.
type Fingerprint struct {
	// Hash is a version, a colon, and a SHA-256 in hexadecimal form, as in "v1:9f86…". The version
	// is "v1-sampled" if the hash covers only a part of the contents.
	Hash  string
	Names string // SHA-256 of the names of the files; empty if the data are not read from files
	Files int    // number of files
	Bytes int64  // total size of the files, or of the values if the data are not from files
}

// The versions of Fingerprint.Hash. Change both if the same data get another hash, for example
// because a generator draws other samples.
const (
	fingerprintVersion        = "v1:"
	fingerprintVersionSampled = "v1-sampled:"
)

// formatFingerprintHash returns a Fingerprint.Hash: the version, and the digest of h.
func formatFingerprintHash(h hash.Hash, sampled bool) string {
	version := fingerprintVersion
	if sampled {
		version = fingerprintVersionSampled
	}
	return version + hex.EncodeToString(h.Sum(nil))
}

// IsSampled reports whether the fingerprint covers only part of large contents, so that it may miss
// a change of some bytes.
func (f Fingerprint) IsSampled() bool { return strings.HasPrefix(f.Hash, fingerprintVersionSampled) }

// Fingerprint returns the fingerprint of o, which was opened with the config c, or with the config of a
// staged copy of c's files. It ignores later changes of o.Train and o.Test; FingerprintSamples does not.
//
// It hashes all bytes of the files that contain the samples. If they are larger than 2 GiB together,
// it hashes their names and sizes and 256 MiB of their contents. It caches the result in the user's
// cache folder, and reads the files again only if their sizes or times have changed.
//
// If ctx is canceled, Fingerprint returns the cause.
func (o OpenedData) Fingerprint(ctx context.Context, c Config) (Fingerprint, error) {
	h := filehash.Hasher{}
	if cache, err := os.UserCacheDir(); err == nil {
		h.Cache = filepath.Join(cache, "lockstep", "data")
	}
	return o.fingerprint(ctx, c, h)
}

// fingerprint is Fingerprint with the given hasher of files.
func (o OpenedData) fingerprint(ctx context.Context, c Config, hasher filehash.Hasher) (Fingerprint, error) {
	settings, err := json.Marshal(o.sampleSettings(c)) // sorts the keys
	if err != nil {
		return Fingerprint{}, fmt.Errorf("fingerprint data: %w", err)
	}
	h := sha256.New()
	_, _ = h.Write(settings) // never fails
	files := o.filesToHash(c)
	if len(files) == 0 {
		return Fingerprint{Hash: formatFingerprintHash(h, false)}, nil
	}
	sum, err := hasher.Sum(ctx, files)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("fingerprint data: %w", err)
	}
	fmt.Fprintln(h, sum.Hash)
	return Fingerprint{Hash: formatFingerprintHash(h, sum.Sampled), Names: sum.Names, Files: len(files), Bytes: sum.Bytes}, nil
}

// ChangedSince returns the paths of the data files that were written or renamed after t. It returns
// nil if all of them were, because then they were probably copied. o and c are as for Fingerprint.
func (o OpenedData) ChangedSince(c Config, t time.Time) []string {
	files := o.filesToHash(c)
	changed := filehash.ChangedSince(files, t)
	if len(changed) == len(files) {
		return nil
	}
	return changed
}

// filesToHash returns the files with the training and test data. o and c are as for Fingerprint.
func (o OpenedData) filesToHash(c Config) []filehash.File {
	return append(toHashFiles("train", c.Path, o.trainFiles), toHashFiles("test", c.testPath(), o.testFiles)...)
}

// sampleSettings returns the settings of c that determine the samples of o before augmentation, including
// defaults, and the names of o's classes. It omits paths, and settings that do not apply to c.Kind.
func (o OpenedData) sampleSettings(c Config) map[string]any {
	s := map[string]any{"kind": c.Kind, "class_names": o.ClassNames}
	switch c.Kind {
	case KindCells:
		s["count"], s["height"], s["width"], s["data_seed"] = c.Count, c.Height, c.Width, c.DataSeed
	case KindShapes:
		shapes := c.shapesOptions().withDefaults()
		s["count"], s["classes"], s["edge"], s["data_seed"] = shapes.Count, shapes.Classes, shapes.Edge, shapes.Seed
	case KindFields:
		s["count"], s["edge"], s["data_seed"] = c.Count, c.Edge, c.DataSeed
	case KindPairs, KindStacks:
		s["foreground"] = cmp.Or(c.Foreground, "white")
		// Without these settings, both readings of gray files are equal.
		if len(c.MaskValues) > 0 {
			s["mask_values"] = c.MaskValues
		}
		if len(c.Range) > 0 {
			s["range"] = c.Range
		}
		if c.ToGray {
			s["to_gray"] = true
		}
	case KindCIFAR10, KindFolders, KindImageNet:
		s["resize"] = c.Resize
	case KindVolumes:
		volumes := c.volumeOptions().withDefaults()
		s["input"], s["target"] = volumes.Input, volumes.Target
	}
	if !c.hasTestData() {
		s["test_images"], s["data_seed"] = c.TestImages, c.DataSeed
		if c.ValidationImages > 0 {
			s["validation_images"] = c.ValidationImages
		}
		if c.Group != "" {
			s["group"] = c.Group
		}
	}
	if c.Tile > 0 {
		s["tile"] = c.Tile
	}
	if c.hasVolumes() && c.Augment.Crop > 0 {
		s["crop"], s["samples"], s["test_samples"], s["data_seed"] = c.Augment.Crop, c.Samples, c.TestSamples, c.DataSeed
	}
	return s
}

type dataFile struct {
	name string // identifies the file, and the class of its sample if that is not part of the file
	path string // relative to the path of the data set, or absolute
}

// toHashFiles converts the files of the data set at root for hashing. part is "train" or "test".
func toHashFiles(part, root string, files []dataFile) []filehash.File {
	var all []filehash.File
	for _, f := range files {
		file := filehash.File{Name: part + "/" + f.name, Root: root, Path: f.path}
		if filepath.IsAbs(f.path) {
			file.Root = filepath.Dir(f.path)
		} else {
			file.Path = filepath.Join(root, f.path)
		}
		all = append(all, file)
	}
	return all
}

// labeledFiles returns the files that contain the samples of ds, in the order of the samples. root is
// the path from which ds was opened. For generated data it returns nil.
func listFiles(ds Dataset, root string) ([]dataFile, error) {
	var paths []string
	byBase := false // whether the name of a file is without its folder
	switch d := ds.(type) {
	case *Pairs:
		paths = d.files
	case *floatDataset:
		paths = d.files
	case *Volumes:
		paths = d.files.Paths
	case *Classes:
		switch s := d.source.(type) {
		case *pictureFiles:
			return s.labeledFiles(d.names, d.labels), nil
		case cifarPictures:
			paths, byBase = s.Paths, true // root may be the folder of the batches or its parent
		}
	}
	var files []dataFile
	for _, path := range paths {
		path, err := filepath.Rel(root, path)
		if err != nil {
			return nil, fmt.Errorf("list data files: %w", err)
		}
		name := filepath.ToSlash(path)
		if byBase {
			name = filepath.Base(path)
		}
		files = append(files, dataFile{name, path})
	}
	return files, nil
}

// labeledFiles returns the pictures' files, and appends to each name the name of the picture's class.
// labels contains the class index of each picture.
func (s *pictureFiles) labeledFiles(names []string, labels []int32) []dataFile {
	files := make([]dataFile, len(s.paths))
	for i, path := range s.paths {
		name := filepath.ToSlash(path)
		if filepath.IsAbs(path) { // from a list that has the absolute paths
			name = relativeOrBase(s.dir, path)
		}
		files[i] = dataFile{name + " " + names[labels[i]], path}
	}
	return files
}

// relativeOrBase returns path, which is absolute, relative to root. If path is not below root, it
// returns the last element of path.
func relativeOrBase(root, path string) string {
	if folder, err := filepath.Abs(root); err == nil {
		if rel, err := filepath.Rel(folder, path); err == nil && filepath.IsLocal(rel) {
			return filepath.ToSlash(rel)
		}
	}
	return filepath.Base(path)
}

// maxFingerprintedBytes limits the bytes that FingerprintSamples hashes. It is smaller than the limit
// for files, because the samples are read again in each run.
const maxFingerprintedBytes = 256 << 20

// FingerprintSamples returns the fingerprint of the samples of sets, such as data that a program
// has made itself. Of values with more than 256 MiB together, it reads samples at equal distances.
// If ctx is canceled, it returns the cause.
func FingerprintSamples(ctx context.Context, sets ...Dataset) (Fingerprint, error) {
	return fingerprintSamples(ctx, maxFingerprintedBytes, sets)
}

func fingerprintSamples(ctx context.Context, limit int64, sets []Dataset) (Fingerprint, error) {
	total := int64(0)
	for _, set := range sets {
		total += 4 * int64(window.ElementCount(set.ImageShape())+window.ElementCount(set.TargetShape())) * int64(set.Len())
	}
	h := sha256.New()
	for _, set := range sets {
		fmt.Fprintln(h, set.Len(), set.ImageShape(), set.TargetShape())
		n := set.Len()
		if total > limit {
			n = min(n, max(2, int(float64(n)*float64(limit)/float64(total))))
		}
		image, target := NewBuffers(set)
		for i := range n {
			if ctx.Err() != nil {
				return Fingerprint{}, context.Cause(ctx)
			}
			// Training reports the error if it uses the sample.
			if err := set.Get(i*(set.Len()-1)/max(1, n-1), image, target); err != nil {
				fmt.Fprintln(h, "not readable")
				continue
			}
			_ = binary.Write(h, binary.LittleEndian, image) // never fails
			_ = binary.Write(h, binary.LittleEndian, target)
		}
	}
	return Fingerprint{Hash: formatFingerprintHash(h, total > limit), Bytes: total}, nil
}
