package fetch

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5" //nolint:gosec // the checksum that the sets' pages publish
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// archive is a .tar.gz of files.
func archive(t *testing.T, files map[string]string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sum(b []byte) string {
	s := md5.Sum(b) //nolint:gosec // as above
	return hex.EncodeToString(s[:])
}

// server serves one file and breaks off after cut bytes, the first time that
// it is asked (cut 0: never).
type server struct {
	*httptest.Server
	mu     sync.Mutex
	ranges []string // that were asked for
}

func serve(t *testing.T, text []byte, cut int, ranges bool) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.ranges = append(s.ranges, r.Header.Get("Range"))
		first := len(s.ranges) == 1
		s.mu.Unlock()
		if first && cut > 0 {
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			_, _ = w.Write(text[:cut])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		if !ranges {
			r.Header.Del("Range")
		}
		http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(text))
	}))
	t.Cleanup(s.Close)
	return s
}

func set(text []byte) Set {
	return Set{Name: "test", Files: []File{{Name: "set.tar.gz", URL: "https://example.invalid/a/set.tar.gz", MD5: sum(text)}}}
}

// TestGet downloads, unpacks, and does not download again.
func TestGet(t *testing.T) {
	text := archive(t, map[string]string{"set/a.txt": "one", "./set/b/c.txt": "two"})
	s := serve(t, text, 0, true)
	dir := t.TempDir()
	var done, total int64
	o := Options{Site: s.URL, Progress: func(_ string, d, of int64) { done, total = d, of }}
	for range 2 {
		if err := Get(context.Background(), set(text), dir, o); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"set/a.txt": "one", "set/b/c.txt": "two"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", name, got, err)
		}
	}
	if len(s.ranges) != 1 {
		t.Errorf("%d downloads, want 1: the second finds the file", len(s.ranges))
	}
	if done != int64(len(text)) || total != done {
		t.Errorf("progress ends at %d of %d", done, total)
	}
}

// TestResume: a download that breaks off is taken up where it ended, at once or
// by the next call, and begins anew where the server cannot do that.
func TestResume(t *testing.T) {
	text := archive(t, map[string]string{"a": strings.Repeat("0123456789abcdef", 9999) + fmt.Sprint(os.Getpid())})
	cut := len(text) / 2
	for _, c := range []struct {
		name    string
		ranges  bool
		retries int
	}{{"next call", true, 0}, {"at once", true, 2}, {"no ranges", false, 0}} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, text, cut, c.ranges)
			dir := t.TempDir()
			err := Get(context.Background(), set(text), dir, Options{Site: s.URL, Retries: c.retries})
			if c.retries == 0 {
				part := filepath.Join(dir, "set.tar.gz.part")
				want := fmt.Sprintf("kept the first %d bytes in %s: run the same command to continue", cut, part)
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "connection failed") {
					t.Fatalf("%v, want %q", err, want)
				}
				err = Get(context.Background(), set(text), dir, Options{Site: s.URL})
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "set.tar.gz")); err != nil || !bytes.Equal(got, text) {
				t.Error("the file differs", err)
			}
			if len(s.ranges) != 2 || s.ranges[1] != fmt.Sprintf("bytes=%d-", cut) {
				t.Errorf("ranges %q were asked for", s.ranges)
			}
		})
	}
	// A part that is whole already: the server has nothing behind it.
	s := serve(t, text, 0, true)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "set.tar.gz.part"), text, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Get(context.Background(), set(text), dir, Options{Site: s.URL}); err != nil {
		t.Error(err)
	}
}

func TestGetErrors(t *testing.T) {
	text := archive(t, map[string]string{"a": "b"})
	s := serve(t, text, 0, true)
	dir := t.TempDir()
	wrong := set(text)
	wrong.Files[0].MD5 = strings.Repeat("0", 32)
	err := Get(context.Background(), wrong, dir, Options{Site: s.URL})
	if err == nil || !strings.Contains(err.Error(), "get test: checksum of "+s.URL+"/a/set.tar.gz: got "+sum(text)+", want 0000") || !strings.Contains(err.Error(), "removed the download: try again") {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("%v are left of a file with another checksum", left)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	if err := Get(context.Background(), set(text), dir, Options{Site: gone.URL}); err == nil || !strings.Contains(err.Error(), "server responded 404 Not Found") {
		t.Error(err)
	}
	gone.Close()
	if err := Get(context.Background(), set(text), dir, Options{Site: gone.URL}); err == nil || !strings.Contains(err.Error(), `"lockstep data make" makes similar data`) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Get(ctx, set(text), dir, Options{Site: s.URL}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	evil := archive(t, map[string]string{"../evil": "b"})
	s = serve(t, evil, 0, true)
	if err := Get(context.Background(), set(evil), dir, Options{Site: s.URL}); err == nil || !strings.Contains(err.Error(), `refused file "../evil": its path leads out of`) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "evil")); err == nil {
		t.Error("a file is written outside of the folder")
	}
}

// TestRecord asks a server that answers as Zenodo does, and unpacks a zip file.
func TestRecord(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create("images_collective/1.png")
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(w, "png")
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	answer := fmt.Sprintf(`{"id": 7639190, "files": [{"key": "images.zip", "size": %d, "checksum": "md5:%s", "links": {"self": "…"}}]}`, b.Len(), sum(b.Bytes()))
	mux := http.NewServeMux()
	mux.HandleFunc("/api/records/7639190", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
	mux.HandleFunc("/api/records/7639190/files/images.zip/content", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b.Bytes()) })
	s := httptest.NewServer(mux)
	defer s.Close()
	cells, err := Lookup("unet-cells")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Get(context.Background(), cells, dir, Options{Site: s.URL}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "images_collective", "1.png")); err != nil || string(got) != "png" {
		t.Errorf("%q, %v", got, err)
	}
	for text, want := range map[string]string{
		`{"files": []}`: "contains no files", `<html>`: "decode response of",
		`{"files": [{"key": "../x", "checksum": "md5:0"}]}`: `file "../x", checksum "md5:0"`,
		`{"files": [{"key": "x", "checksum": "sha256:0"}]}`: `file "x", checksum "sha256:0"`,
	} {
		answer = text
		if err := Get(context.Background(), cells, dir, Options{Site: s.URL}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestSets: names are unique; checksums are such, and stand on the page named.
func TestSets(t *testing.T) {
	names := map[string]bool{}
	for _, s := range Sets() {
		if names[s.Name] || s.Source == "" || s.Kind == "" || (len(s.Files) == 0) == (s.Record == "") {
			t.Errorf("%+v", s)
		}
		names[s.Name] = true
		for _, f := range s.Files {
			if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(f.MD5) || !strings.HasPrefix(f.URL, "https://") || !strings.HasSuffix(f.URL, f.Name) {
				t.Errorf("%+v", f)
			}
		}
	}
	if _, err := Lookup("mnist"); err == nil || !strings.Contains(err.Error(), `unknown data set "mnist": use cifar10, cifar10-python, unet-cells`) {
		t.Error(err)
	}
}

func TestContentRange(t *testing.T) {
	for s, want := range map[string]string{
		"bytes 5-9/10": "5 10 true", "bytes 5-9/*": "5 0 true", "": "0 0 false", "bytes x-9/10": "0 0 false", "bits 5-9/10": "0 0 false", "bytes 5/10": "0 0 false",
	} {
		start, size, ok := parseContentRange(s)
		if got := fmt.Sprint(start, size, ok); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}
