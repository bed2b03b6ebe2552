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

// Formats returns the extensions that Save supports.
func Formats() []string { return []string{"html", "pdf"} }

// ErrNoBrowser is returned by FindBrowser, and when saving a PDF, if there is no browser that can
// print one.
var ErrNoBrowser = errors.New("printing a PDF needs chromium, which is not in PATH; install it: apt-get install --yes --no-install-recommends chromium")

// printTimeout limits the time for printing a PDF. Printing takes seconds, or longer on a busy
// machine.
const printTimeout = 10 * time.Minute

// FindBrowser returns the path of chromium, or of a browser based on it, for printing PDFs. It
// returns ErrNoBrowser if none is installed.
func FindBrowser() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoBrowser
}

// Save writes the page to a file; see SavePage. Saving the same logs as HTML again writes the same
// bytes; a PDF contains the date of printing.
func (r *Report) Save(ctx context.Context, path string) error {
	return SavePage(ctx, path, r.renderHTML)
}

// SavePage writes a self-contained page to path. The extension is .html, or .pdf for a page printed
// by chromium. SavePage creates missing folders, and writes the file completely or not at all.
// render returns the page as HTML; if paper is true, all sections are unfolded.
func SavePage(ctx context.Context, path string, render func(paper bool) string) error {
	var err error
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".html", ".htm":
		err = saveAtomically(path, func(f *os.File) error {
			_, err := f.WriteString(render(false))
			return err
		})
	case ".pdf":
		err = saveAtomically(path, func(f *os.File) error { return printPDF(ctx, f, render(true)) })
	default:
		err = fmt.Errorf("unknown extension %q; use .html or .pdf", ext)
	}
	if err != nil {
		return fmt.Errorf("save report %s: %w", path, err)
	}
	return nil
}

// saveAtomically creates missing folders and a file with the content that fill writes. If fill
// returns an error, an existing file remains unchanged.
func saveAtomically(path string, fill func(f *os.File) error) error {
	if err := wholefile.CheckOverwrite(path); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return wholefile.Write(path, 0o644, fill)
}

// printPDF prints a page with chromium and copies the PDF to f. It uses a temporary profile, so
// that chromium does not read or change the user's profile.
func printPDF(ctx context.Context, f *os.File, page string) error {
	browser, err := FindBrowser()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lockstep-report-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a remaining temporary folder does no harm
	source, path := filepath.Join(dir, "report.html"), filepath.Join(dir, "report.pdf")
	if err := os.WriteFile(source, []byte(page), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, printTimeout)
	defer cancel()
	arguments := []string{
		"--headless", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
		"--user-data-dir=" + filepath.Join(dir, "profile"), "--no-pdf-header-footer", "--print-to-pdf=" + path,
		(&url.URL{Scheme: "file", Path: source}).String(),
	}
	if os.Geteuid() == 0 { // chromium's sandbox does not work for root; the page has no scripts
		arguments = append([]string{"--no-sandbox"}, arguments...)
	}
	cmd := exec.CommandContext(ctx, browser, arguments...)
	// Chromium starts other processes, which must end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	output, err := cmd.CombinedOutput()
	info, missing := os.Stat(path)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("print PDF with %s: %w", browser, ctx.Err())
	case err != nil:
		return fmt.Errorf("print PDF with %s: %w: %s", browser, err, outputTail(output))
	case missing != nil || info.Size() == 0:
		return fmt.Errorf("print PDF with %s: no file was written: %s", browser, outputTail(output))
	}
	printed, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, printed)
	return errors.Join(err, printed.Close())
}

// outputTail returns the last 500 bytes of a program's output, preceded by "…" if the output is
// longer.
func outputTail(output []byte) string {
	const most = 500
	text := strings.TrimSpace(string(output))
	if len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	return text
}
