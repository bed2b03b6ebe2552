package report

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Formats are the extensions that Save knows.
func Formats() []string { return []string{"html", "pdf"} }

// ErrNoBrowser says that no browser is there that can print a PDF.
var ErrNoBrowser = errors.New("no chromium in PATH, which prints the PDF; install it: apt-get install --yes --no-install-recommends chromium")

// printTime is the longest that a PDF may take: seconds for a usual page, more
// on a busy machine.
const printTime = 10 * time.Minute

// FindBrowser is the program that prints PDFs: chromium, or what is built from
// it. Where there is none, the error is ErrNoBrowser.
func FindBrowser() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoBrowser
}

// Save writes the page to a file, as its extension says: .html, or .pdf, which
// chromium prints. Missing folders are made; the file is there whole or not at
// all. An HTML file is the same, byte for byte, for the same logs; in a PDF
// chromium writes its date.
func (r *Report) Save(ctx context.Context, path string) error {
	var err error
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".html", ".htm":
		err = write(path, func(next string) error { return os.WriteFile(next, []byte(r.Page()), 0o644) })
	case ".pdf":
		err = write(path, func(next string) error { return r.print(ctx, next) })
	default:
		err = fmt.Errorf("extension %q is not known; use .html or .pdf", ext)
	}
	if err != nil {
		return fmt.Errorf("save report %s: %w", path, err)
	}
	return nil
}

// write makes a file beside its place and renames it.
func write(path string, produce func(next string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := path + ".next"
	err := produce(next)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(os.Remove(next)))
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// print lets chromium print the page. Its profile is a folder of its own, so
// that it neither reads nor leaves anything of the user's.
func (r *Report) print(ctx context.Context, path string) error {
	browser, err := FindBrowser()
	if err != nil {
		return err
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lockstep-report-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder that stays harms nobody
	source := filepath.Join(dir, "report.html")
	if err := os.WriteFile(source, []byte(r.render(true)), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, printTime)
	defer cancel()
	arguments := []string{
		"--headless", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
		"--user-data-dir=" + filepath.Join(dir, "profile"), "--no-pdf-header-footer", "--print-to-pdf=" + path,
		(&url.URL{Scheme: "file", Path: source}).String(),
	}
	if os.Geteuid() == 0 { // chromium's sandbox refuses root; the page is ours and has no script
		arguments = append([]string{"--no-sandbox"}, arguments...)
	}
	cmd := exec.CommandContext(ctx, browser, arguments...)
	// It starts processes of its own, which are to end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	said, err := cmd.CombinedOutput()
	info, missing := os.Stat(path)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("print with %s: %w", browser, ctx.Err())
	case err != nil:
		return fmt.Errorf("print with %s: %w: %s", browser, err, last(said))
	case missing != nil || info.Size() == 0:
		return fmt.Errorf("print with %s: it wrote no file: %s", browser, last(said))
	}
	return nil
}

// last is the end of what a program said.
func last(said []byte) string {
	const most = 500
	text := strings.TrimSpace(string(said))
	if len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	return text
}
