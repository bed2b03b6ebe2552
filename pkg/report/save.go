package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lockstep/pkg/internal/wholefile"
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
		err = save(path, func(f *os.File) error {
			_, err := f.WriteString(r.Page())
			return err
		})
	case ".pdf":
		err = save(path, func(f *os.File) error { return r.print(ctx, f) })
	default:
		err = fmt.Errorf("extension %q is not known; use .html or .pdf", ext)
	}
	if err != nil {
		return fmt.Errorf("save report %s: %w", path, err)
	}
	return nil
}

// save writes a file whole, into a folder that it makes where there is none.
func save(path string, fill func(f *os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return wholefile.Write(path, 0o644, fill)
}

// print has chromium print the page, and copies the PDF to f. Chromium's profile
// is a folder of its own, so that it neither reads nor leaves anything of the
// user's.
func (r *Report) print(ctx context.Context, f *os.File) error {
	browser, err := FindBrowser()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lockstep-report-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder that stays harms nobody
	source, path := filepath.Join(dir, "report.html"), filepath.Join(dir, "report.pdf")
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
	printed, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, printed)
	return errors.Join(err, printed.Close())
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
