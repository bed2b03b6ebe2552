package fetch

import (
	"context"
	"crypto/md5" //nolint:gosec // the checksum that the sets' pages publish
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Options configure how data sets are downloaded. The zero value is ready for use.
type Options struct {
	Client *http.Client // nil means a client without a total time-out
	// Site is the scheme and host of a mirror that has all files, such as
	// https://mirror.example.org. If it is empty, files are downloaded from their original sites.
	Site string
	// Retries is the number of times that Get resumes a download after the connection failed. Get
	// does not wait between retries.
	Retries int
	// Progress, if not nil, is called from time to time with the bytes of a file that have been
	// downloaded. total is 0 if the size of the file is unknown.
	Progress func(file string, done, total int64)
}

// errConnection is wrapped by errors after which a retry may succeed.
var errConnection = errors.New("connection failed")

// Get downloads the files of a data set to dir and unpacks archives there. It skips files that exist
// with the right checksum. If a download was interrupted, NAME.part contains the beginning of the
// file NAME, and Get downloads only the rest.
func Get(ctx context.Context, s Set, dir string, o Options) error {
	if err := getFiles(ctx, s, dir, o); err != nil {
		return fmt.Errorf("get %s: %w", s.Name, err)
	}
	return nil
}

// getFiles is Get, but its errors do not name the data set.
func getFiles(ctx context.Context, s Set, dir string, o Options) error {
	if o.Client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.ResponseHeaderTimeout = time.Minute
		o.Client = &http.Client{Transport: transport}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	files := s.Files
	if s.Record != "" {
		var err error
		if files, err = o.zenodoFiles(ctx, s.Record); err != nil {
			return err
		}
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if err := o.download(ctx, f, path); err != nil {
			return err
		}
		if err := Unpack(ctx, path, dir); err != nil {
			return err
		}
	}
	return nil
}

// mirrorURL replaces the scheme and host of url by a non-empty o.Site.
func (o Options) mirrorURL(url string) string {
	if o.Site == "" {
		return url
	}
	_, rest, _ := strings.Cut(url, "://")
	_, path, _ := strings.Cut(rest, "/")
	return strings.TrimSuffix(o.Site, "/") + "/" + path
}

// maxZenodoRecordBytes limits the size of the JSON description of a Zenodo record.
const maxZenodoRecordBytes = 16 << 20

// zenodoFiles requests a Zenodo record's list of files (https://developers.zenodo.org).
func (o Options) zenodoFiles(ctx context.Context, id string) ([]File, error) {
	url := o.mirrorURL(zenodoSite + "/api/records/" + id)
	r, err := o.requestFromOffset(ctx, url, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get record %s: %s responded %s", id, url, r.Status)
	}
	var answer struct {
		Files []struct {
			Key      string `json:"key"`
			Size     int64  `json:"size"`
			Checksum string `json:"checksum"`
		} `json:"files"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxZenodoRecordBytes)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("get record %s: decode response of %s: %w", id, url, err)
	}
	var files []File
	for _, f := range answer.Files {
		sum, ok := strings.CutPrefix(f.Checksum, "md5:")
		if !ok || f.Key == "" || f.Key != filepath.Base(f.Key) || f.Key == ".." || f.Key == "." {
			return nil, fmt.Errorf("get record %s: invalid name or checksum: file %q, checksum %q", id, f.Key, f.Checksum)
		}
		files = append(files, File{Name: f.Key, URL: zenodoSite + "/api/records/" + id + "/files/" + f.Key + "/content", MD5: sum, Size: f.Size})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("get record %s: response of %s contains no files", id, url)
	}
	return files, nil
}

// requestFromOffset requests url from byte offset on. The caller must close the response body.
func (o Options) requestFromOffset(ctx context.Context, url string, offset int64) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if offset > 0 {
		q.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	r, err := o.Client.Do(q)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w (check the network connection; without one, \"lockstep data make\" makes similar data): %w", errConnection, err)
	}
	return r, nil
}

// download downloads f to path and verifies its checksum. It does nothing if the file at path
// already has that checksum.
func (o Options) download(ctx context.Context, f File, path string) error {
	if sum, err := fileMD5(path); err == nil && sum == f.MD5 {
		return nil
	}
	part := path + ".part"
	for try := 0; ; try++ {
		err := o.resumeDownload(ctx, f, part)
		if err == nil {
			break
		}
		if !errors.Is(err, errConnection) || try >= o.Retries {
			if info, statErr := os.Stat(part); statErr == nil && info.Size() > 0 {
				err = fmt.Errorf("%w; kept the first %d bytes in %s: run the same command to continue", err, info.Size(), part)
			}
			return err
		}
	}
	sum, err := fileMD5(part)
	if err != nil {
		return err
	}
	if sum != f.MD5 {
		return errors.Join(fmt.Errorf("checksum of %s: got %s, want %s: the file was replaced at its source or damaged in transit; removed the download: try again", o.mirrorURL(f.URL), sum, f.MD5), os.Remove(part))
	}
	return os.Rename(part, path)
}

// resumeDownload appends the missing bytes of f to the file at partPath. The error wraps
// errConnection if a retry may succeed.
func (o Options) resumeDownload(ctx context.Context, f File, partPath string) (err error) {
	out, err := os.OpenFile(partPath, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	have, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	url := o.mirrorURL(f.URL)
	r, err := o.requestFromOffset(ctx, url, have)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	total := f.Size
	switch {
	case r.StatusCode == http.StatusOK:
		have = 0 // the server sends the complete file
		if r.ContentLength > 0 {
			total = r.ContentLength
		}
	case r.StatusCode == http.StatusPartialContent && have > 0:
		start, size, ok := parseContentRange(r.Header.Get("Content-Range"))
		if !ok || start != have {
			return fmt.Errorf("download %s: server sent range %q, want bytes from %d; remove %s to start again", url, r.Header.Get("Content-Range"), have, partPath)
		}
		total = size
	case r.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return nil // the part is complete; the caller verifies its checksum
	default:
		return fmt.Errorf("download %s: server responded %s", url, r.Status)
	}
	if err := out.Truncate(have); err != nil {
		return err
	}
	if _, err := out.Seek(have, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(out, &progressReader{r: r.Body, done: have, total: total, report: func(done int64) {
		if o.Progress != nil {
			o.Progress(f.Name, done, total)
		}
	}})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("download %s: %w at byte %d: %w", url, errConnection, have+n, err)
	case total > 0 && have+n < total:
		return fmt.Errorf("download %s: %w at byte %d of %d", url, errConnection, have+n, total)
	}
	return nil
}

// parseContentRange parses a Content-Range header, "bytes START-END/SIZE" (RFC 9110,
// section 14.4). size is 0 if SIZE is *. ok is false if the header is invalid.
func parseContentRange(s string) (start, size int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	span, whole, cut := strings.Cut(s, "/")
	from, _, dash := strings.Cut(span, "-")
	start, err := strconv.ParseInt(from, 10, 64)
	if size, _ = strconv.ParseInt(whole, 10, 64); !ok || !cut || !dash || err != nil {
		return 0, 0, false
	}
	return start, size, true
}

// progressReader calls report with the number of bytes read so far, about once per MiB and at the end.
type progressReader struct {
	r                  io.Reader
	done, total, shown int64 // bytes: read so far, expected, and last reported
	report             func(done int64)
}

func (t *progressReader) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.done += int64(n)
	if t.done-t.shown >= 1<<20 || t.done == t.total {
		t.shown = t.done
		t.report(t.done)
	}
	return n, err
}

func fileMD5(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := md5.New() //nolint:gosec // as above
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
