package runs

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/clean"
)

// Names and headers of the files with the scores of classes and of held-out images.
const (
	classesFile   = "classes.csv"
	imagesFile    = "images.csv"
	classesHeader = "epoch,class,iou,dice,pixels"
	imagesHeader  = "image,iou,dice,pixels"
)

// NamedScores are the scores of one class over the complete held-out set, or of one held-out image.
// IoU and Dice of an image are the means over the classes in its mask.
type NamedScores struct {
	Name      string  // of the class or the image
	IoU, Dice float64 // 0 to 1; NaN if no counted pixel of the masks has the class, or the image has none
	Pixels    int64   // of the class in the masks, or of the image, that are counted
}

// ClassScores are the scores of one class after an epoch: one row of classes.csv.
type ClassScores struct {
	Epoch int // from 1
	NamedScores
}

type namedScoresJSON struct {
	Name   string     `json:"name"`
	IoU    jsonNumber `json:"iou"`
	Dice   jsonNumber `json:"dice"`
	Pixels int64      `json:"pixels"`
}

// MarshalJSON writes scores that are NaN as null.
func (s NamedScores) MarshalJSON() ([]byte, error) {
	return json.Marshal(namedScoresJSON{s.Name, jsonNumber(s.IoU), jsonNumber(s.Dice), s.Pixels})
}

// UnmarshalJSON parses the output of MarshalJSON. Missing scores become NaN.
func (s *NamedScores) UnmarshalJSON(text []byte) error {
	v := namedScoresJSON{IoU: jsonNumber(math.NaN()), Dice: jsonNumber(math.NaN())}
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	*s = NamedScores{clean.EscapeText(v.Name), float64(v.IoU), float64(v.Dice), v.Pixels}
	return nil
}

// cells returns the scores as cells of a CSV file. NaN is an empty cell, and a line break in a name
// is a space, because the file is read line by line.
func (s NamedScores) cells() []string {
	name := strings.NewReplacer("\n", " ", "\r", " ").Replace(s.Name)
	return []string{name, formatCell(s.IoU), formatCell(s.Dice), strconv.FormatInt(s.Pixels, 10)}
}

func parseScores(cells []string) (s NamedScores, err error) {
	number := func(text string) float64 {
		if text == "" {
			return math.NaN()
		}
		v, e := strconv.ParseFloat(text, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("expected a number, got %.40q", text)
		}
		return v
	}
	s = NamedScores{Name: clean.EscapeText(cells[0]), IoU: number(cells[1]), Dice: number(cells[2])}
	var e error
	if s.Pixels, e = strconv.ParseInt(cells[3], 10, 64); e != nil && err == nil {
		err = fmt.Errorf("expected a number of pixels, got %.40q", cells[3])
	}
	return s, err
}

func formatRows(rows [][]string) ([]byte, error) {
	var text bytes.Buffer
	err := csv.NewWriter(&text).WriteAll(rows)
	return text.Bytes(), err
}

func formatClasses(classes []ClassScores) ([]byte, error) {
	rows := make([][]string, len(classes))
	for i, c := range classes {
		rows[i] = append([]string{strconv.Itoa(c.Epoch)}, c.cells()...)
	}
	return formatRows(rows)
}

// AppendClasses appends the scores of all classes after an epoch, from 1, to classes.csv, and waits
// until they are on disk. Call it before AppendEpoch: readers look for them at a new row in epochs.csv.
func (w *Writer) AppendClasses(epoch int, classes []NamedScores) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := make([]ClassScores, len(classes))
	for i, c := range classes {
		rows[i] = ClassScores{epoch, c}
	}
	text, err := formatClasses(rows)
	if err == nil {
		err = w.appendRows(classesFile, classesHeader, text, true)
	}
	if err != nil {
		return fmt.Errorf("write scores of classes: %w", err)
	}
	return nil
}

// WriteImages replaces images.csv by the scores of the held-out images after the last epoch.
func (w *Writer) WriteImages(images []NamedScores) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.lock.Check(); err != nil {
		return err
	}
	rows := make([][]string, len(images))
	for i, s := range images {
		rows[i] = s.cells()
	}
	text, err := formatRows(rows)
	if err == nil {
		err = w.replaceFile(imagesFile, append([]byte(imagesHeader+"\n"), text...))
	}
	if err != nil {
		return fmt.Errorf("write scores of images: %w", err)
	}
	return nil
}

// truncateScoresAfter removes images.csv and the rows of classes.csv after the given epoch. images.csv
// contains the scores after the last epoch.
func (w *Writer) truncateScoresAfter(epoch int) error {
	if err := os.Remove(w.path(imagesFile)); err != nil && !os.IsNotExist(err) {
		return err
	}
	if _, err := os.Lstat(w.path(classesFile)); os.IsNotExist(err) {
		return nil
	}
	classes, _, err := readClasses(w.dir)
	if err != nil {
		return err
	}
	text, err := formatClasses(slices.DeleteFunc(classes, func(c ClassScores) bool { return c.Epoch > epoch }))
	if err != nil {
		return err
	}
	return w.replaceFile(classesFile, append([]byte(classesHeader+"\n"), text...))
}

// readClasses reads classes.csv in dir, which need not exist. If an epoch has several rows for a
// class, the last one counts.
func readClasses(dir string) ([]ClassScores, []Problem, error) {
	var classes []ClassScores
	type place struct {
		epoch int
		class string
	}
	index := map[place]int{}
	problems, err := readCSVRows(dir, classesFile, classesHeader, func(cells []string) error {
		epoch, err := strconv.Atoi(cells[0])
		if err != nil || epoch < 1 {
			return fmt.Errorf("expected an epoch, got %.40q", cells[0])
		}
		s, err := parseScores(cells[1:])
		if err != nil {
			return err
		}
		if i, ok := index[place{epoch, s.Name}]; ok {
			classes[i].NamedScores = s
			return nil
		}
		index[place{epoch, s.Name}] = len(classes)
		classes = append(classes, ClassScores{epoch, s})
		return nil
	})
	return classes, problems, err
}

// ReadImages reads the scores of the held-out images of the run folder dir, in the order of the
// data. It returns none and no error if there are none: the run has not ended, or its task is not
// segmentation. Lines that cannot be read become problems.
func ReadImages(dir string) ([]NamedScores, []Problem, error) {
	var images []NamedScores
	problems, err := readCSVRows(dir, imagesFile, imagesHeader, func(cells []string) error {
		s, err := parseScores(cells)
		if err == nil {
			images = append(images, s)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read scores of images of %s: %w", filepath.Clean(dir), err)
	}
	return images, problems, nil
}
