package logread

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/text/encoding/unicode"

	"lockstep/pkg/runs"
)

// encodings returns text in the encodings that programs write.
func encodings(t *testing.T, text string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{"utf8": []byte(text), "mark": []byte("\ufeff" + text)}
	for name, order := range map[string]unicode.Endianness{"utf16le": unicode.LittleEndian, "utf16be": unicode.BigEndian} {
		b, err := unicode.UTF16(order, unicode.UseBOM).NewEncoder().Bytes([]byte(text))
		check(t, err)
		all[name] = b
		if len(text) > 20 { // and without the mark
			all[name+" unmarked"] = b[2:]
		}
	}
	return all
}

// TestEncodings checks that logs and run folders with a byte-order mark or in
// UTF-16, compressed or not, are read like those in UTF-8, by Read and by
// Follower.
func TestEncodings(t *testing.T) {
	for name, text := range encodings(t, twoRows) {
		for file, content := range map[string][]byte{"log_2.csv": text, "log_2.csv.gz": gzipped(t, text), "log_2.csv.xz": xzPacked(t, text), "log_2.csv.bz2": bzip2Packed(t, text)} {
			dir := t.TempDir()
			check(t, os.WriteFile(filepath.Join(dir, file), content, 0o644))
			all, problems, err := Read(dir)
			check(t, err)
			if len(all) != 1 || len(all[0].Epochs) != 2 || len(problems) != 0 {
				t.Errorf("%s in %s: %d runs, problems %v", file, name, len(all), problems)
			}
			f, err := Follow(t.Context(), dir)
			check(t, err)
			if !f.Next() || len(f.Runs()) != 1 || len(f.Runs()[0].Epochs) != 2 {
				t.Errorf("%s in %s: the follower has %d runs, %v", file, name, len(f.Runs()), f.Err())
			}
		}
	}
	info := encodings(t, `{"schema":1,"study":"s","series":"ddp","workers":2,"status":"done"}`)
	for name, epochs := range encodings(t, "epoch,seconds\n1,2\n2,2\n") {
		dir := t.TempDir()
		check(t, os.WriteFile(filepath.Join(dir, "run.json"), info[name], 0o644))
		check(t, os.WriteFile(filepath.Join(dir, "epochs.csv"), epochs, 0o644))
		run, err := runs.Read(dir)
		check(t, err)
		if len(run.Epochs) != 2 || run.Info.Workers != 2 || len(run.Problems) != 0 {
			t.Errorf("run folder in %s: %d epochs, problems %v", name, len(run.Epochs), run.Problems)
		}
	}
}

// TestNULTail checks that NUL bytes at the end of a file, as after a power
// failure, are a problem and that the content before them is read.
func TestNULTail(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "log_2.csv"), []byte(twoRows+strings.Repeat("\x00", 4096)), 0o644))
	all, problems, err := Read(dir)
	check(t, err)
	if len(all) != 1 || len(all[0].Epochs) != 2 || len(problems) != 1 || !strings.Contains(problems[0].String(), "log_2.csv:4: ") {
		t.Fatalf("%d runs, problems %v", len(all), problems)
	}
}
