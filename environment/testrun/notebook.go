package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// runNotebooks executes all notebooks, or without --strict only the demo's, which trains, draws figures and
// proves its runs. The demo gets small settings, the comparison of strategies one seed, and the course short runs.
// A cell that failed or did not run, a missing image, saved figure or report, or a run folder that cannot be
// verified is an error.
func runNotebooks(ctx context.Context, r *runner) error {
	out := absolutePath(filepath.Join(cache, "notebook"))
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	logs, figures, temporary := filepath.Join(out, "runs"), filepath.Join(out, "figures"), filepath.Join(out, "tmp")
	for _, dir := range []string{logs, figures, temporary} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	report := filepath.Join(out, "report.html")
	env := append(jupyterEnv(), "TMPDIR="+temporary, "LOCKSTEP_LOGS="+logs, "LOCKSTEP_LOCKS="+filepath.Join(out, "locks"), "LOCKSTEP_DEMO_FIGURES="+figures,
		"LOCKSTEP_DEMO_WORKERS=1,2", "LOCKSTEP_DEMO_EPOCHS=2", "LOCKSTEP_YOUR_REPORT="+report, "LOCKSTEP_STRATEGIES_SEEDS=1", "LOCKSTEP_COURSE=quick")
	all, course := []string{"notebooks/unet-scaling.ipynb"}, []string(nil)
	if r.strict {
		var err1, err2 error
		all, err1 = filepath.Glob("notebooks/*.ipynb")
		course, err2 = filepath.Glob("notebooks/course/*.ipynb")
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if len(all) == 0 || len(course) == 0 {
			return errors.New("found no notebooks in notebooks/ or in notebooks/course/")
		}
	}
	for _, path := range append(all, course...) {
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.Contains(string(source), "gorgonia.org/cu") { // needs the kernel with -tags nvgpu; the tests of kernels/ run it
			r.printLine(path + ": skipped here: it needs the kernel with gorgonia.org/cu, and the tests of kernels/ run it")
			continue
		}
		if err := runNotebook(ctx, r, env, path, out); err != nil {
			return err
		}
	}
	saved, err := os.ReadDir(figures)
	if err != nil {
		return err
	}
	if len(saved) == 0 {
		return fmt.Errorf("the demo's notebook saved no figure in %s", figures)
	}
	if _, err := os.Stat(report); err != nil && r.strict {
		return fmt.Errorf("notebooks/your-logs.ipynb wrote no report: %w", err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		return fmt.Errorf("the notebooks left %v in the temporary folder %s: %w", left, temporary, err)
	}
	r.printLine(fmt.Sprintf("%d files in figures", len(saved)))
	if r.strict {
		if err := checkCourse(ctx, r, env, course, out); err != nil {
			return err
		}
	}
	return verifyRuns(ctx, r, logs)
}

func runNotebook(ctx context.Context, r *runner, env []string, path, out string) error {
	executed := filepath.Join(out, filepath.Base(path))
	page := strings.TrimSuffix(executed, ".ipynb") + ".html"
	if err := r.runCommand(ctx, env, pythonInterpreter(), "environment/execute-notebook", "--kernel", "lockstep", "--html", page, path, executed); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	data, err := os.ReadFile(executed)
	if err != nil {
		return err
	}
	images, err := checkNotebook(data)
	if err != nil {
		return fmt.Errorf("check executed notebook %s: %w", executed, err)
	}
	r.printLine(fmt.Sprintf("%s: %d images", path, images))
	return nil
}

// verifyRuns recomputes the results of all run folders below dir, except other programs'.
func verifyRuns(ctx context.Context, r *runner, dir string) error {
	var infos []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "run.json" {
			infos = append(infos, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(infos) < 2 { // one run with 1 worker and one with 2
		return fmt.Errorf("the demo's notebook wrote %d run folders below %s, want at least 2", len(infos), dir)
	}
	for _, info := range infos {
		own, err := isOwnRun(info)
		if err != nil {
			return err
		}
		if !own {
			continue
		}
		if err := r.runCommand(ctx, nil, lockstepCommand, "verify", "run", filepath.Dir(info)); err != nil {
			return err
		}
	}
	return nil
}

// isOwnRun reports whether Lockstep itself trained the run with the given run.json, so that its results can be
// recomputed.
func isOwnRun(path string) (bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	var info struct {
		Command []string `json:"command"`
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return info.Command == nil, nil
}

// checkNotebook checks that in an executed notebook (nbformat 4) every code cell has run without an error or
// standard error, the claims of each cell are true, and there is an image. It returns the number of images.
//
// A cell's claims, in its metadata, are what the notebook's text says about the output: regular expressions that
// it must match or, after !, must not match.
func checkNotebook(data []byte) (images int, err error) {
	var nb struct {
		Cells []struct {
			Type     string `json:"cell_type"`
			Metadata struct {
				Claims []string `json:"claims"`
			} `json:"metadata"`
			Source  json.RawMessage `json:"source"`
			Count   *int            `json:"execution_count"`
			Outputs []struct {
				Type   string                     `json:"output_type"`
				Name   string                     `json:"ename"`
				Value  string                     `json:"evalue"`
				Stream string                     `json:"name"`
				Text   json.RawMessage            `json:"text"`
				Data   map[string]json.RawMessage `json:"data"`
			} `json:"outputs"`
		} `json:"cells"`
	}
	if err := json.Unmarshal(data, &nb); err != nil {
		return 0, fmt.Errorf("read notebook: %w", err)
	}
	code := 0
	for i, c := range nb.Cells {
		source, err := decodeMultilineString(c.Source)
		if err != nil {
			return 0, fmt.Errorf("cell %d: %w", i+1, err)
		}
		if c.Type != "code" || strings.TrimSpace(source) == "" {
			continue
		}
		code++
		if c.Count == nil {
			return 0, fmt.Errorf("cell %d has not run", i+1)
		}
		var shown strings.Builder
		for _, o := range c.Outputs {
			for _, raw := range []json.RawMessage{o.Text, o.Data["text/plain"], o.Data["text/html"]} {
				if raw == nil {
					continue
				}
				text, err := decodeMultilineString(raw)
				if err != nil {
					return 0, fmt.Errorf("cell %d: output: %w", i+1, err)
				}
				if o.Type != "stream" { // a line of a slow cell may be in two streams
					text = "\n" + text + "\n"
				}
				shown.WriteString(text)
			}
			if o.Stream == "stderr" {
				return 0, fmt.Errorf("cell %d wrote to standard error: %s", i+1, shown.String())
			}
			if o.Type == "error" {
				return 0, fmt.Errorf("cell %d ended in an error: %s: %s", i+1, o.Name, o.Value)
			}
			if o.Data["image/svg+xml"] != nil || o.Data["image/png"] != nil || bytes.Contains(o.Data["text/html"], []byte("data:image/")) {
				images++
			}
		}
		for _, claim := range c.Metadata.Claims {
			if err := checkClaim(claim, shown.String()); err != nil {
				return 0, fmt.Errorf("cell %d: %w", i+1, err)
			}
		}
	}
	if code == 0 {
		return 0, errors.New("found no cell with code")
	}
	if images == 0 {
		return 0, errors.New("found no image in the outputs")
	}
	return images, nil
}

func checkClaim(claim, shown string) error {
	text, negative := strings.CutPrefix(claim, "!")
	pattern, err := regexp.Compile("(?m)" + text)
	if err != nil {
		return fmt.Errorf("claim %q: %w", claim, err)
	}
	if pattern.MatchString(shown) == negative {
		return fmt.Errorf("the notebook's text claims %q, but the output is:\n%s", claim, shown)
	}
	return nil
}

// decodeMultilineString decodes a string of nbformat, which may be a list of lines.
func decodeMultilineString(raw json.RawMessage) (string, error) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return one, nil
	}
	var lines []string
	if err := json.Unmarshal(raw, &lines); err != nil {
		return "", fmt.Errorf("source: %w", err)
	}
	return strings.Join(lines, ""), nil
}
