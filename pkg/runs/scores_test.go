package runs

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sampleClasses returns the scores of three classes after an epoch. No mask has the last one, and a
// name has a comma and quotation marks.
func sampleClasses(epoch int) []NamedScores {
	x := float64(epoch)
	return []NamedScores{
		{"background", 0.9, 0.95 + x/1000, 700}, {`cell, "round"`, 1 / (x + 2), 0.5, 300}, {"nucleus", math.NaN(), math.NaN(), 0},
	}
}

// TestClassesReadBack: every reader has the rows of an epoch as soon as it has the epoch. A resumed
// run has one row per class and epoch, also of the epochs that it trains again.
func TestClassesReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, sampleInfo())
	check(t, err)
	tail := NewTail(dir)
	var want []ClassScores
	for epoch := 1; epoch <= 3; epoch++ {
		for _, c := range sampleClasses(epoch) {
			want = append(want, ClassScores{epoch, c})
		}
		check(t, w.AppendClasses(epoch, sampleClasses(epoch)))
		check(t, w.AppendEpoch(sampleEpoch(epoch)))
		_, err := tail.Read()
		check(t, err)
		run, err := Read(dir)
		check(t, err)
		equal(t, tail.Run(), run)
		equal(t, run.Classes, want)
		equal(t, run.Problems, []Problem(nil))
	}
	check(t, w.WriteImages([]NamedScores{{Name: "a.png", IoU: 1, Dice: 1, Pixels: 9}}))
	check(t, w.AppendClasses(4, sampleClasses(4))) // and a kill before the row of the epoch
	check(t, w.Finish(StatusCanceled, nil))

	path := filepath.Join(dir, classesFile)
	text, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(path, text[:len(text)-3], 0o644))
	run, err := Read(dir)
	check(t, err)
	if len(run.Problems) != 1 || run.Problems[0].Line != 13 || len(run.Classes) != 11 {
		t.Errorf("a torn row: %d rows, problems %v", len(run.Classes), run.Problems)
	}
	w, _, err = Resume(dir)
	check(t, err)
	check(t, w.TruncateAfter(2))
	check(t, w.AppendClasses(3, sampleClasses(3)))
	check(t, w.AppendEpoch(sampleEpoch(3)))
	check(t, w.Finish(StatusDone, nil))
	text, err = os.ReadFile(path)
	check(t, err)
	run, err = Read(dir)
	check(t, err)
	equal(t, run.Classes, want)
	if n := strings.Count(string(text), "\n"); n != 10 {
		t.Errorf("%d lines, want a header and 9 rows:\n%s", n, text)
	}
	if images, _, err := ReadImages(dir); err != nil || images != nil {
		t.Errorf("the images of the earlier last epoch are kept: %v, %v", images, err)
	}
}

func TestImagesReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, sampleInfo())
	check(t, err)
	images, problems, err := ReadImages(dir)
	if images != nil || problems != nil || err != nil {
		t.Errorf("before the end: %v, %v, %v", images, problems, err)
	}
	check(t, w.WriteImages([]NamedScores{{Name: "replaced.png"}}))
	want := []NamedScores{{"a,b.png", 1. / 3, 0.5, 64}, {"all ignored.png", math.NaN(), math.NaN(), 0}}
	check(t, w.WriteImages(want))
	check(t, w.Finish(StatusDone, nil))
	images, problems, err = ReadImages(dir)
	check(t, err)
	equal(t, images, want)
	equal(t, problems, []Problem(nil))

	path := filepath.Join(dir, imagesFile)
	check(t, os.WriteFile(path, []byte(imagesHeader+"\na.png,0.5\nb.png,many,0.5,1\nc.png,1,1,1.5\nd.png,1,1,2\n"), 0o644))
	images, problems, err = ReadImages(dir)
	check(t, err)
	equal(t, images, []NamedScores{{"d.png", 1, 1, 2}})
	equal(t, problems, []Problem{{path, 2, "expected 4 cells, got 2"}, {path, 3, `expected a number, got "many"`}, {path, 4, `expected a number of pixels, got "1.5"`}})
}

// TestClassesInTest: run.json has null for the scores of a class that no mask has.
func TestClassesInTest(t *testing.T) {
	want := Test{IoU: 0.5, Classes: []NamedScores{{"background", 0.5, 0.6, 10}, {"cell", math.NaN(), math.NaN(), 0}}}
	text, err := json.Marshal(want)
	check(t, err)
	if !strings.Contains(string(text), `{"name":"cell","iou":null,"dice":null,"pixels":0}`) {
		t.Errorf("run.json has %s", text)
	}
	var got Test
	check(t, json.Unmarshal(text, &got))
	equal(t, got, want)
}
