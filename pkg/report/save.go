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

// ErrNoBrowser is the error of FindBrowser, and of saving a PDF, without a browser that can print one.
var ErrNoBrowser = errors.New("printing a PDF needs chromium, which is not in PATH; install it: apt-get install --yes --no-install-recommends chromium")

// printTimeout limits the printing of a PDF, which takes seconds, or longer on a busy machine.
const printTimeout = 10 * time.Minute

// FindBrowser returns the path of chromium, or of a browser based on it, which prints PDFs. Without one,
// it returns ErrNoBrowser.
func FindBrowser() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoBrowser
}

// Save writes the page to a file; see SavePage. For the same logs, HTML has the same bytes; a PDF contains
// the date of printing.
func (r *Report) Save(ctx context.Context, path string) error {
	return SavePage(ctx, path, r.render)
}

// SavePage writes a self-contained page to path as .html, or as .pdf, which chromium prints. It creates
// missing folders, and writes the file completely or not at all. render returns the page, with all sections
// unfolded if it is for paper.
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

// saveAtomically creates a file with the content that fill writes, and missing folders. An error of fill
// leaves an existing file unchanged.
func saveAtomically(path string, fill func(f *os.File) error) error {
	if err := wholefile.CheckOverwrite(path); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return wholefile.Write(path, 0o644, fill)
}

// printPDF prints a page with chromium and copies the PDF to f. A temporary profile keeps chromium from
// reading or changing the user's.
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

// outputTail returns the last 500 bytes of a program's output, after "…" if it is longer.
func outputTail(output []byte) string {
	const most = 500
	text := strings.TrimSpace(string(output))
	if len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	return text
}
