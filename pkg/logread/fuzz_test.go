package logread

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/identity"
	"lockstep/pkg/logread/internal/pattern"
	"lockstep/pkg/logread/internal/record"
)

// FuzzContent checks that files of any content, compressed or not, are read
// within the limits.
func FuzzContent(f *testing.F) {
	for _, pack := range compressors() {
		packed := pack(f, []byte(twoRows))
		f.Add(packed)
		f.Add(packed[:len(packed)/2])
	}
	f.Add([]byte("\x80\x04\x95\x00."))
	f.Add([]byte("PK\x03\x04archive/data.pkl"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "log_2.csv")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, _ = Read(path) // the format may be unknown
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 512<<20 { // zstd may claim its window
			t.Errorf("%d bytes allocated to read %d", got, len(text))
		}
	})
}

// FuzzMerge checks that the parts of files of any content can be merged.
func FuzzMerge(f *testing.F) {
	err := filepath.WalkDir("testdata/tree", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			f.Add(path, text)
			f.Add(path, text[:len(text)/2])
		}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(_ *testing.T, path string, text []byte) {
		var all []*record.Part
		for _, k := range files.Formats(nil) {
			report := &record.Report{Path: path, Kind: k.Name}
			in := &record.Input{Path: path, Reader: bytes.NewReader(text), Size: int64(len(text)), Report: report}
			parts, err := k.Read(context.Background(), in)
			if err != nil {
				continue // of another format
			}
			for _, p := range parts {
				p.Report, p.Run.File, p.Run.Dir = report, path, path
			}
			all = append(all, parts...)
		}
		(&identity.Resolver{Root: ".", Patterns: func(string) []pattern.Pattern { return nil }}).IdentifyRuns(all)
	})
}
