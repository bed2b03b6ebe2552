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

// Options says how to download.
type Options struct {
	Client *http.Client // nil: one that waits as long as data come
	// Site replaces scheme and host of all addresses: a mirror.
	Site string
	// Retries is how often a download that breaks off is taken up again at once.
	Retries int
	// Progress is told, now and then, how much of a file there is; total is 0
	// where it is not known.
	Progress func(file string, done, total int64)
}

// attempt's errors that another attempt may mend.
var errBroken = errors.New("the connection broke off")

// Get downloads a set to dir and unpacks it there. A file that is there already
// with the right checksum is not downloaded again; one of which a part is there
// (NAME.part) is taken up where it ends.
func Get(ctx context.Context, s Set, dir string, o Options) error {
	if err := get(ctx, s, dir, o); err != nil {
		return fmt.Errorf("get %s: %w", s.Name, err)
	}
	return nil
}

func get(ctx context.Context, s Set, dir string, o Options) error {
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
		if files, err = o.record(ctx, s.Record); err != nil {
			return err
		}
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if err := o.file(ctx, f, path); err != nil {
			return err
		}
		if err := Unpack(ctx, path, dir); err != nil {
			return err
		}
	}
	return nil
}

// site is url, on the mirror where there is one.
func (o Options) site(url string) string {
	if o.Site == "" {
		return url
	}
	_, rest, _ := strings.Cut(url, "://")
	_, path, _ := strings.Cut(rest, "/")
	return strings.TrimSuffix(o.Site, "/") + "/" + path
}

// maxRecord bounds the description of a record.
const maxRecord = 16 << 20

// record asks Zenodo for the files of a record (https://developers.zenodo.org).
func (o Options) record(ctx context.Context, id string) ([]File, error) {
	url := o.site(zenodoSite + "/api/records/" + id)
	r, err := o.request(ctx, url, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for record %s: %s answers %s", id, url, r.Status)
	}
	var answer struct {
		Files []struct {
			Key      string `json:"key"`
			Size     int64  `json:"size"`
			Checksum string `json:"checksum"`
		} `json:"files"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxRecord)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("ask for record %s: read what %s answers: %w", id, url, err)
	}
	var files []File
	for _, f := range answer.Files {
		sum, ok := strings.CutPrefix(f.Checksum, "md5:")
		if !ok || f.Key == "" || f.Key != filepath.Base(f.Key) || f.Key == ".." || f.Key == "." {
			return nil, fmt.Errorf("ask for record %s: file %q with checksum %q cannot be used", id, f.Key, f.Checksum)
		}
		files = append(files, File{Name: f.Key, URL: zenodoSite + "/api/records/" + id + "/files/" + f.Key + "/content", MD5: sum, Size: f.Size})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("ask for record %s: %s names no files", id, url)
	}
	return files, nil
}

func (o Options) request(ctx context.Context, url string, from int64) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if from > 0 {
		q.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	r, err := o.Client.Do(q)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w (is there a network? Without one, \"lockstep data make\" makes data like it): %w", errBroken, err)
	}
	return r, nil
}

// file downloads f to path.
func (o Options) file(ctx context.Context, f File, path string) error {
	if sum, err := checksum(path); err == nil && sum == f.MD5 {
		return nil
	}
	part := path + ".part"
	for try := 0; ; try++ {
		err := o.attempt(ctx, f, part)
		if err == nil {
			break
		}
		if !errors.Is(err, errBroken) || try >= o.Retries {
			if info, statErr := os.Stat(part); statErr == nil && info.Size() > 0 {
				err = fmt.Errorf("%w; %d bytes are kept in %s: the same command goes on from there", err, info.Size(), part)
			}
			return err
		}
	}
	sum, err := checksum(part)
	if err != nil {
		return err
	}
	if sum != f.MD5 {
		return errors.Join(fmt.Errorf("checksum of %s is %s, not %s: it is another file or was damaged on its way; it is removed: try again", o.site(f.URL), sum, f.MD5), os.Remove(part))
	}
	return os.Rename(part, path)
}

// attempt goes on with a part until the file's end.
func (o Options) attempt(ctx context.Context, f File, part string) (err error) {
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	have, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	url := o.site(f.URL)
	r, err := o.request(ctx, url, have)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	total := f.Size
	switch {
	case r.StatusCode == http.StatusOK:
		have = 0 // the whole file comes
		if r.ContentLength > 0 {
			total = r.ContentLength
		}
	case r.StatusCode == http.StatusPartialContent && have > 0:
		start, size, ok := contentRange(r.Header.Get("Content-Range"))
		if !ok || start != have {
			return fmt.Errorf("download %s: it sends %q, bytes from %d were asked for; remove %s to begin anew", url, r.Header.Get("Content-Range"), have, part)
		}
		total = size
	case r.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return nil // the part is whole, as its checksum will tell
	default:
		return fmt.Errorf("download %s: the server answers %s", url, r.Status)
	}
	if err := out.Truncate(have); err != nil {
		return err
	}
	if _, err := out.Seek(have, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(out, &told{r: r.Body, done: have, total: total, tell: func(done int64) {
		if o.Progress != nil {
			o.Progress(f.Name, done, total)
		}
	}})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("download %s: %w at byte %d: %w", url, errBroken, have+n, err)
	case total > 0 && have+n < total:
		return fmt.Errorf("download %s: %w at byte %d of %d", url, errBroken, have+n, total)
	}
	return nil
}

// contentRange reads "bytes START-END/SIZE" (RFC 9110, 14.4); the size may be *.
func contentRange(s string) (start, size int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	span, whole, cut := strings.Cut(s, "/")
	from, _, dash := strings.Cut(span, "-")
	start, err := strconv.ParseInt(from, 10, 64)
	if size, _ = strconv.ParseInt(whole, 10, 64); !ok || !cut || !dash || err != nil {
		return 0, 0, false
	}
	return start, size, true
}

// told tells how far a reader is, every megabyte.
type told struct {
	r                  io.Reader
	done, total, shown int64
	tell               func(done int64)
}

func (t *told) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.done += int64(n)
	if t.done-t.shown >= 1<<20 || t.done == t.total {
		t.shown = t.done
		t.tell(t.done)
	}
	return n, err
}

// checksum is a file's MD5.
func checksum(path string) (string, error) {
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
