package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// fakePictures speaks the protocol of environment/peers/pictures.py in shell:
// every request "takes" 1 s and reads values of the mean that the test sets.
const fakePictures = `
if [ -n "$FAKE_EXIT" ]; then echo "no module named PIL" >&2; exit "$FAKE_EXIT"; fi
echo '{"name": "fake Pillow", "threads": 1}'
while read -r request rest; do
  case $request in
    pictures) mean=$FAKE_PICTURES ;;
    cifar) mean=$FAKE_CIFAR ;;
    *) mean=$FAKE_CROPS ;;
  esac
  echo "{\"seconds\": 1, \"loss\": $mean}"
done
`

// meanOfLast is the mean of |values| of the last of n samples, as the data say.
func meanOfLast(t *testing.T, ds data.Dataset, err error, n int) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	_, mean, err := readSamples(t.Context(), ds, n)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(mean)
}

// TestMeasureLoader: every measurement gives a record; the peer must read the same
// values; nothing is left behind.
func TestMeasureLoader(t *testing.T) {
	dir, temporary := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, picturesScript), []byte(fakePictures), 0o644); err != nil {
		t.Fatal(err)
	}
	// Crops as large as the box are the box.
	o := LoaderOptions{Pictures: 8, Edge: 32, Box: 8, Crop: 8, Crops: 2, Workers: 1, Repeats: 2, Peer: PeerOptions{Scripts: dir, Python: "sh"}}
	large, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 8, Classes: 2, Edge: 32, Seed: 1})
	t.Setenv("FAKE_PICTURES", meanOfLast(t, large, err, 8))
	small, err := data.Shapes(t.Context(), data.ShapesOptions{Count: 8, Seed: 1})
	t.Setenv("FAKE_CIFAR", meanOfLast(t, small, err, 8))
	box, err := data.Fields(t.Context(), data.FieldsOptions{Count: 1, Edge: 8, Seed: 1})
	t.Setenv("FAKE_CROPS", meanOfLast(t, box, err, 1))
	t.Setenv("TMPDIR", temporary)
	records, err := MeasureLoader(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"decode PNG 32×32", "decode JPEG 32×32", "decode JPEG 32×32 and resize to 256×256", "CIFAR-10 resized to 128×128",
		"crop 8³ of 8³, HDF5 in one piece", "crop 8³ of 8³, HDF5 in chunks of 4³, gzip", "crop 8³ of 8³, npy",
		"loader order shuffle shard map batch prefetch", "loader order shuffle shard batch map",
		"loader order cache shuffle shard batch map prefetch", "loader order shuffle shard map cache batch prefetch", "loader order shard map batch cache shuffle prefetch",
	}
	if len(records) != len(want) {
		t.Fatalf("%d records: %+v", len(records), records)
	}
	for i, r := range records {
		peer := "fake Pillow"
		if strings.HasPrefix(want[i], "loader") {
			peer = "order shuffle shard batch map prefetch"
		}
		if r.Name != want[i] || r.Peer != peer || !(r.Value > 0) || !(r.Ratio > 0) || r.Repeats != 2 || r.Machine == "" || r.Commit == "" {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	// The fake peer takes a second for 8 pictures.
	if records[0].PeerValue != 8 {
		t.Errorf("the peer reads %g images a second, want 8", records[0].PeerValue)
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	t.Setenv("FAKE_CIFAR", "0.01")
	if _, err := MeasureLoader(t.Context(), o); err == nil || !strings.Contains(err.Error(), "in Lockstep and 0.0100 in fake Pillow (measured in 1 s), want about the same value") {
		t.Errorf("other values: %v", err)
	}
	t.Setenv("FAKE_EXIT", "3")
	if _, err := MeasureLoader(t.Context(), o); !errors.Is(err, ErrPeerMissing) || !strings.Contains(err.Error(), InstallCommand) {
		t.Errorf("error %v", err)
	}
}

func TestLoaderOptions(t *testing.T) {
	for want, o := range map[string]LoaderOptions{
		"got 1 images of 32 pixels per side": {Pictures: 1, Edge: 32, Repeats: 1},
		"0 repeats":                          {Pictures: 8, Edge: 32},
		"10 crops of edge 9 of a box":        {Pictures: 8, Edge: 32, Repeats: 1, Box: 8, Crop: 9, Crops: 10},
		"got -1 workers":                     {Pictures: 8, Edge: 32, Repeats: 1, Workers: -1},
	} {
		if _, err := MeasureLoader(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
