package predict

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/data"
	"lockstep/pkg/data/survey"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/train"
)

// Formats returns the formats of masks and probabilities: png and tif are pictures, npy is an array
// of float32 values.
func Formats() []string { return []string{"png", "tif", "npy"} }

// FileOptions configures Predictor.Files.
type FileOptions struct {
	// Out is the folder of the results. If it is empty, no files are written. For an image name.png,
	// the files are masks/name.png, overlays/name.png and probabilities/name.png (0 to 65535; with
	// more than two classes, probabilities/class/name.png for each class). For all images together
	// there is objects.csv, or probabilities.csv if the run learned classification.
	Out     string
	Formats []string // of masks and probabilities, of Formats(); nil: png
	Labels  string   // folder of masks with which the predictions are compared; empty: none
	// Progress, if not nil, is called before each image and after each window of it.
	Progress func(image, window, windows int)
}

// Files applies the network to the given PNG, JPEG or TIFF files and writes the results, each file
// completely or not at all. If o.Labels is set, it returns the scores of the complete images.
func (p *Predictor) Files(ctx context.Context, paths []string, o FileOptions) (train.Scores, error) {
	s := p.newImageScores()
	if len(o.Formats) == 0 {
		o.Formats = Formats()[:1]
	}
	names, err := imageBaseNames(paths)
	if err != nil {
		return s, err
	}
	var labels []string
	if o.Labels != "" {
		if p.isClassifier() {
			return s, errors.New("compare with labels: the network learned classification, want segmentation")
		}
		if labels, _, err = survey.MatchMasks(paths, o.Labels, p.config.MaskSuffix); err != nil {
			return s, fmt.Errorf("compare with labels: %w", err)
		}
	}
	if err := p.prepareOutputs(names, o, slices.Concat(paths, labels)); err != nil {
		return s, err
	}
	var table [][]string
	for i, path := range paths {
		if o.Progress != nil {
			o.Progress(i, 0, 1)
			p.Progress = func(done, total int) { o.Progress(i, done, total) }
		}
		r, err := p.File(ctx, path)
		if err != nil {
			if o.Out != "" && i > 0 {
				err = fmt.Errorf("%w (%s has the predictions of %s before it, without %s)", err, o.Out, english.FormatCount(i, "image"), p.resultTableName())
			}
			return s, err
		}
		if labels != nil {
			if err := addLabelScores(ctx, &s, r, labels[i]); err != nil {
				return s, fmt.Errorf("compare %s with its label: %w", path, err)
			}
		}
		table = append(table, r.resultTableRows(filepath.Base(path))...)
		if err := r.writeFiles(ctx, names[i], o); err != nil {
			return s, fmt.Errorf("write prediction of %s: %w", path, err)
		}
	}
	if o.Out == "" {
		return s, nil
	}
	return s, wholefile.Write(filepath.Join(o.Out, p.resultTableName()), 0o666, func(f *os.File) error {
		return csv.NewWriter(f).WriteAll(slices.Insert(table, 0, p.resultTableHeader()))
	})
}

// imageBaseNames returns the images' names without extensions.
func imageBaseNames(paths []string) ([]string, error) {
	of := map[string]string{}
	var names []string
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		if other, ok := of[name]; ok {
			return nil, fmt.Errorf("%s and %s have the same name, so that one result would replace the other: predict them into different folders", other, path)
		}
		of[name] = path
		names = append(names, name)
	}
	return names, nil
}

// prepareOutputs creates the folder o.Out. It returns an error if o.Out is no folder, or if a
// result would replace an input.
func (p *Predictor) prepareOutputs(names []string, o FileOptions, inputs []string) error {
	if o.Out == "" {
		return nil
	}
	for _, f := range o.Formats {
		if !slices.Contains(Formats(), f) {
			return fmt.Errorf("unknown format %q: use %s", f, english.JoinOr(Formats()))
		}
	}
	if info, err := os.Stat(o.Out); err == nil && !info.IsDir() {
		return fmt.Errorf("write predictions: %s is a file: choose a folder", o.Out)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	paths := []string{filepath.Join(o.Out, p.resultTableName())}
	for _, name := range names {
		if p.isClassifier() {
			break
		}
		paths = append(paths, overlayPath(o.Out, name))
		for _, f := range o.Formats {
			paths = append(paths, resultFilePath(o.Out, "masks", name, f))
			paths = append(paths, probabilityPaths(o.Out, name, f, p.ClassNames())...)
		}
	}
	for _, path := range paths {
		if err := wholefile.CheckOverwrite(path, inputs...); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.Out, 0o777); err != nil {
		return err
	}
	// After an interrupt, the table of an earlier call must not remain beside newer masks.
	if err := os.Remove(paths[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func resultFilePath(out, what, name, format string) string {
	return filepath.Join(out, what, name+"."+format)
}

// probabilityPaths returns the paths of an image's probabilities. classes are the names of the
// network's logits, or nil if there is one. An array has all classes.
func probabilityPaths(out, name, format string, classes []string) []string {
	if classes == nil || format == "npy" {
		return []string{resultFilePath(out, "probabilities", name, format)}
	}
	var paths []string
	for _, class := range classes {
		paths = append(paths, resultFilePath(out, filepath.Join("probabilities", class), name, format))
	}
	return paths
}

func overlayPath(out, name string) string { return resultFilePath(out, "overlays", name, "png") }

func (r *Prediction) writeFiles(ctx context.Context, name string, o FileOptions) error {
	if o.Out == "" || r.classes != nil {
		return nil
	}
	mask := r.Mask()
	var classes []string // of the logits
	shape := []int{r.Height, r.Width}
	if r.logitPlaneCount() > 1 {
		classes, shape = r.ClassNames(), append([]int{r.logitPlaneCount()}, shape...)
	}
	for _, f := range o.Formats {
		masks, probabilities := resultFilePath(o.Out, "masks", name, f), probabilityPaths(o.Out, name, f, classes)
		var err error
		if f == "npy" {
			values := make([]float32, len(mask.Pix))
			for i, v := range mask.Pix {
				values[i] = float32(v)
			}
			err = errors.Join(data.WriteArray(ctx, masks, values, r.Height, r.Width), data.WriteArray(ctx, probabilities[0], r.Probabilities(), shape...))
		} else {
			err = data.WritePicture(ctx, masks, mask)
			for k, m := range r.probabilityImages() {
				err = errors.Join(err, data.WritePicture(ctx, probabilities[k], m))
			}
		}
		if err != nil {
			return err
		}
	}
	return data.WritePicture(ctx, overlayPath(o.Out, name), r.Overlay())
}

// resultTableName returns the name of the CSV file with all images' results.
func (p *Predictor) resultTableName() string {
	if p.isClassifier() {
		return "probabilities.csv"
	}
	return "objects.csv"
}

// resultTableHeader returns the first row of the table. It must be called after resultTableRows, because the
// number of classes is unknown before.
func (p *Predictor) resultTableHeader() []string {
	if p.classes != nil {
		return append([]string{"image", "class"}, p.classes...)
	}
	return []string{"image", "class", "object", "area_pixels", "center_x", "center_y"}
}

// resultTableRows returns the rows of the table for one image.
func (r *Prediction) resultTableRows(image string) [][]string {
	number := func(v float64, bits int) string { return strconv.FormatFloat(v, 'g', -1, bits) }
	if r.classes != nil {
		row := []string{image, r.classes[r.Class()]}
		for _, v := range r.Probabilities() {
			row = append(row, number(float64(v), 32))
		}
		return [][]string{row}
	}
	var rows [][]string
	for i, o := range r.Objects() {
		x, y := strconv.FormatFloat(o.CenterX, 'f', 2, 64), strconv.FormatFloat(o.CenterY, 'f', 2, 64)
		rows = append(rows, []string{image, r.ClassNames()[o.Class], strconv.Itoa(i + 1), strconv.Itoa(o.Area), x, y})
	}
	return rows
}
