package gpu

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/engine"
)

// Results contains the results of environment/gpu-check in one folder below logs/gpu. Its methods
// describe the results as text. For a stage that was not run, they say so.
type Results struct {
	Folder   string // logs/gpu/2026-11-21; empty: there is none
	root     string
	failed   string          // the newest folder in which every stage failed
	Machine  *engine.Machine // nil if the stage was not run; so are the other fields
	Reports  []Report
	Peers    []comparison.Record
	Training *CurveComparison
}

// ReadResults reads the newest folder below root (logs/gpu of the checkout) in which a stage has succeeded.
// Without one, the Results are empty. An unreadable file is an error.
func ReadResults(root string) (*Results, error) {
	r := &Results{root: root}
	days, err := filepath.Glob(filepath.Join(root, "20??-??-??"))
	if err != nil {
		return nil, fmt.Errorf("read GPU results: %w", err)
	}
	slices.Sort(days)
	for _, day := range slices.Backward(days) {
		files, err := filepath.Glob(filepath.Join(day, "*.json"))
		if err != nil {
			return nil, fmt.Errorf("read GPU results: %w", err)
		}
		all := len(files)
		files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, ".failed.json") })
		if len(files) == 0 {
			if all > 0 && r.failed == "" {
				r.failed = day
			}
			continue
		}
		r.Folder = day
		slices.Sort(files)
		for _, file := range files {
			if err := r.readResultFile(file); err != nil {
				return nil, fmt.Errorf("read GPU results: %w", err)
			}
		}
		break
	}
	return r, nil
}

func (r *Results) readResultFile(path string) error {
	var to any
	name := strings.TrimSuffix(filepath.Base(path), ".json")
	switch {
	case name == "versions":
		r.Machine = new(engine.Machine)
		to = r.Machine
	case name == "train":
		r.Training = new(CurveComparison)
		to = r.Training
	case strings.HasPrefix(name, "bench-"):
		r.Reports = append(r.Reports, Report{})
		to = &r.Reports[len(r.Reports)-1]
	case strings.HasPrefix(name, "peers-"):
		var more []comparison.Record
		defer func() { r.Peers = append(r.Peers, more...) }()
		to = &more
	default:
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s: %w: run environment/gpu-check with --fresh", path, err)
	}
	return nil
}

// describeMissing says that a stage was not run, and how to run it.
func (r *Results) describeMissing(stage string) string {
	if r.Folder == "" && r.failed != "" {
		return fmt.Sprintf("No stage has been done on a GPU yet: %s holds those that failed. environment/gpu-check %s runs this one again.\n", r.failed, stage)
	}
	if r.Folder == "" {
		return fmt.Sprintf("Nothing has been run on a GPU yet: %s holds no results. On a machine with a GPU, environment/gpu-check %s fills it.\n", r.root, stage)
	}
	return fmt.Sprintf("%s holds no result of environment/gpu-check %s.\n", r.Folder, stage)
}

// Versions describes the machine's devices and libraries.
func (r *Results) Versions() string {
	if r.Machine == nil {
		return r.describeMissing("versions")
	}
	return r.Machine.String()
}

// Speed returns one line per network: images per second, the time of a step, and memory.
func (r *Results) Speed() string {
	if len(r.Reports) == 0 {
		return r.describeMissing("bench")
	}
	return formatTable(func(w io.Writer) {
		fmt.Fprintln(w, "network\tprecision\timages/s\tms per step\tMiB")
		for _, b := range r.Reports {
			fmt.Fprintf(w, "%s\t%s\t%.1f\t%.2f\t%.0f\n", b.Model, b.Precision, b.ImagesPerSecond, b.StepMilliseconds, b.memoryMiB())
		}
	})
}

// Comparison returns one line per network and mode of PyTorch.
func (r *Results) Comparison() string {
	if len(r.Peers) == 0 {
		return r.describeMissing("peers")
	}
	return formatTable(func(w io.Writer) {
		fmt.Fprintln(w, "what\tours\tpeer\tits\tunit\tratio\tmust be\t")
		for _, p := range r.Peers {
			verdict, target := "", ""
			if p.Target > 0 {
				target, verdict = fmt.Sprintf("%.2f", p.Target), "missed"
				if p.MeetsTarget() {
					verdict = "reached"
				}
			}
			fmt.Fprintf(w, "%s\t%.1f\t%s\t%.1f\t%s\t%.2f\t%s\t%s\n", p.Name, p.Value, p.Peer, p.PeerValue, p.Unit, p.Ratio, target, verdict)
		}
	})
}

// Verdict returns a sentence that says whether the training loss on the GPU followed the loss on the CPU.
func (r *Results) Verdict() string {
	if r.Training == nil {
		return r.describeMissing("train")
	}
	var b strings.Builder
	_ = r.Training.Write(&b, false) // A strings.Builder takes everything.
	return b.String()
}

// formatTable aligns the columns that f writes, which tabs separate.
func formatTable(f func(io.Writer)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	f(w)
	_ = w.Flush() // A strings.Builder takes everything.
	return b.String()
}

// maxUnpackedRunBytes limits the unpacked run folders of a check.
const maxUnpackedRunBytes = 256 << 20

// Runs unpacks the run folders of the train stage into dir, and returns the study's folder, or "" if there
// are none.
func (r *Results) Runs(dir string) (study string, err error) {
	if r.Folder == "" {
		return "", nil
	}
	f, err := os.Open(filepath.Join(r.Folder, "train-runs.tar.gz"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("unpack GPU runs: %w", err)
	}
	defer f.Close()
	if err := unpackTarGz(f, dir); err != nil {
		return "", fmt.Errorf("unpack GPU runs: %s: %w", f.Name(), err)
	}
	return filepath.Join(dir, "gpu"), nil
}

func unpackTarGz(r io.Reader, dir string) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir) // no path can leave dir
	if err != nil {
		return err
	}
	defer root.Close()
	left := int64(maxUnpackedRunBytes)
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeReg:
			if left -= h.Size; left < 0 {
				return fmt.Errorf("the unpacked files are larger than %d MiB", maxUnpackedRunBytes>>20)
			}
			err = writeFile(root, name, files)
		}
		if err != nil {
			return err
		}
	}
}

func writeFile(root *os.Root, name string, r io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
