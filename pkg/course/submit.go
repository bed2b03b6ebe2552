package course

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/course/internal/ipynb"
	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/wholefile"
)

// submissionManifest is the content of submission.json in a submission.
type submissionManifest struct {
	Version  int       `json:"lockstep_submission"`
	Student  string    `json:"student"`
	Notebook string    `json:"notebook"` // file name in the submission
	Created  time.Time `json:"created"`
}

const manifestFile = "submission.json"

// isSubmittedFile reports whether a submission contains the file of a run folder with this name.
// Checkpoints, events and steps are omitted, because they are large and no answer needs them.
var isSubmittedFile = regexp.MustCompile(`^(run\.json|epochs\.csv|classes\.csv|images\.csv|out\.log|load\.csv|usage-.*\.csv)$`).MatchString

var studentNamePattern = regexp.MustCompile(`^[\p{L}\p{N}][\p{L}\p{N}._@-]*$`)

// SubmitOptions are the options of Submit.
type SubmitOptions struct {
	Student string
	Out     string // the zip file
	Kernel  string // runs each function alone, as a grader does; if it is empty, none is run
}

// Submit packs the notebook at path, saved with its outputs, and the runs of its answers into a zip file
// for lockstep course grade. missing describes the tasks without a right answer, which are no error,
// because a student may hand in a part.
func Submit(ctx context.Context, path string, o SubmitOptions, all Tasks) (missing []string, err error) {
	if !studentNamePattern.MatchString(o.Student) {
		return nil, fmt.Errorf("submit %s: invalid name %q: use letters, digits, and . _ @ - inside, with --name", path, o.Student)
	}
	nb, err := ipynb.Read(path)
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	own := all.of(notebookName(path))
	if len(own) == 0 {
		return nil, fmt.Errorf("submit %s: no tasks for a notebook of this name; keep the released notebook's name", path)
	}
	folders, missing, err := own.collectSubmittedRuns(ctx, nb, o.Kernel, newRunLocator(path))
	if err != nil {
		return nil, err
	}
	m := submissionManifest{Version: 1, Student: o.Student, Notebook: filepath.Base(path), Created: time.Now().UTC().Truncate(time.Second)}
	return missing, wholefile.Write(o.Out, 0o644, func(f *os.File) error { return m.writeZip(f, path, folders) })
}

// collectSubmittedRuns returns the folders of the runs that the answers name, by STUDY/RUN. missing describes
// the tasks without a right answer.
func (all Tasks) collectSubmittedRuns(ctx context.Context, nb *ipynb.Notebook, kernel string, locate func(RunReference) (string, error)) (folders map[string]string, missing []string, err error) {
	folders = map[string]string{}
	for _, t := range all {
		if t.Kind == KindText {
			if !t.isTextWritten(nb) {
				missing = append(missing, t.ID+": no text")
			}
			continue
		}
		a, _, err := t.checkStoredAnswer(ctx, nb, locate)
		if err == nil && t.Kind == KindCode && kernel != "" {
			err = t.checkAnswerRunsAlone(ctx, nb, kernel)
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil, nil, err
			}
			missing = append(missing, t.ID+": "+err.Error())
			continue
		}
		for _, r := range a.Runs {
			if folders[r.Run], err = locate(r); err != nil {
				return nil, nil, err
			}
		}
	}
	return folders, missing, nil
}

// writeZip writes the zip file: the manifest, the notebook, and runs/STUDY/RUN/FILE.
func (m submissionManifest) writeZip(w io.Writer, notebook string, folders map[string]string) error {
	z := zip.NewWriter(w)
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	f, err := z.Create(manifestFile)
	if err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := addFileToZip(z, m.Notebook, notebook); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		entries, err := os.ReadDir(folders[name])
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Type().IsRegular() && isSubmittedFile(e.Name()) {
				if err := addFileToZip(z, path.Join("runs", name, e.Name()), filepath.Join(folders[name], e.Name())); err != nil {
					return err
				}
			}
		}
	}
	return z.Close()
}

func addFileToZip(z *zip.Writer, name, file string) error {
	f, err := safeopen.OpenUserFile(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	w, err := z.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// Limits of a submission. They keep a damaged or hostile one from filling the disk.
const (
	largestSubmitted = 64 << 20
	mostSubmitted    = 10000
)

func unpackSubmission(file, dir string) (submissionManifest, error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return submissionManifest{}, fmt.Errorf("%w: want a file that lockstep course submit wrote", err)
	}
	defer func() { _ = z.Close() }() // it was only read
	if len(z.File) > mostSubmitted {
		return submissionManifest{}, fmt.Errorf("has %d files, at most %d are allowed", len(z.File), mostSubmitted)
	}
	left := int64(largestSubmitted)
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		if !filepath.IsLocal(f.Name) || !f.Mode().IsRegular() {
			return submissionManifest{}, fmt.Errorf("invalid file name %q", f.Name)
		}
		n, err := unpackZipFile(f, filepath.Join(dir, f.Name), left)
		if err != nil {
			return submissionManifest{}, fmt.Errorf("unpack %s: %w", f.Name, err)
		}
		left -= n
	}
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return submissionManifest{}, fmt.Errorf("has no %s: want a file that lockstep course submit wrote", manifestFile)
	}
	var m submissionManifest
	if err != nil || json.Unmarshal(text, &m) != nil || m.Version != 1 || !studentNamePattern.MatchString(m.Student) || !filepath.IsLocal(m.Notebook) {
		return submissionManifest{}, fmt.Errorf("%s is damaged", manifestFile)
	}
	return m, nil
}

// unpackZipFile writes f to path and returns its size. It is an error if f has more than most bytes.
func unpackZipFile(f *zip.File, path string, most int64) (int64, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return 0, err
	}
	r, err := f.Open()
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Close() }() // it was only read
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(w, io.LimitReader(r, most+1))
	if err == nil && n > most {
		err = fmt.Errorf("more than %d MiB in all", largestSubmitted>>20)
	}
	return n, errors.Join(err, w.Close())
}
