package rendezvous

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// TokenPath returns the path of the file with this user's secret: lockstep/token in
// $XDG_STATE_HOME (default: ~/.local/state). Ranks that were started without LOCKSTEP_TOKEN, for
// example by srun or mpirun, read the secret from this file. On several machines this requires a
// shared home folder. The file is not in a run folder, because run folders are copied and
// published.
func TokenPath(getenv func(string) string) (string, error) {
	state := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // the XDG specification says to ignore it
		home := getenv("HOME")
		if !filepath.IsAbs(home) {
			return "", errors.New("find token file: neither XDG_STATE_HOME nor HOME is the path of a folder")
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "lockstep", "token"), nil
}

// CreateToken creates the file of TokenPath with a new secret, unless it exists. It returns an
// error if the file cannot be created, or exists and is not private to this user.
func CreateToken(getenv func(string) string) (path string, err error) {
	if path, err = TokenPath(getenv); err != nil {
		return "", err
	}
	if token, err := readToken(path); token != "" || err != nil {
		return path, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("create token file: %w", err)
		}
	}()
	if err = os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "token-") // with mode 0600
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = io.WriteString(f, rand.Text()+"\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	// A link does not replace the file of another process that was faster.
	if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return path, err
}

const maxTokenBytes = 4096

// minTokenLength is the shortest secret that a token file may have: 80 bits, if it is random
// and written in base 32 as by CreateToken.
const minTokenLength = 16

// readToken returns the secret in the file at path, or "" if there is no such file. It returns
// an error if another user could have read or written the file.
func readToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return "", nil
	}
	if errors.Is(err, syscall.ELOOP) {
		return "", fmt.Errorf("read token file %s: it is a link: remove it, and lockstep launch writes a new one", path)
	}
	if err != nil {
		return "", fmt.Errorf("read token file: %w", err)
	}
	defer func() { _ = f.Close() }()
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return "", fmt.Errorf("read token file %s: %w", path, err)
	}
	switch {
	case s.Mode&unix.S_IFMT != unix.S_IFREG:
		return "", fmt.Errorf("read token file %s: it is not a file: remove it, and lockstep launch writes a new one", path)
	case int(s.Uid) != os.Geteuid():
		return "", fmt.Errorf("read token file %s: it belongs to user %d, want %d: remove it, and lockstep launch writes a new one", path, s.Uid, os.Geteuid())
	case s.Mode&0o077 != 0:
		return "", fmt.Errorf("read token file %s: its mode is %04o, want 0600, because others may know the secret: remove it, and lockstep launch writes a new one", path, s.Mode&0o777)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTokenBytes+1))
	if err != nil {
		return "", fmt.Errorf("read token file %s: %w", path, err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minTokenLength || len(text) > maxTokenBytes {
		return "", fmt.Errorf("read token file %s: want a secret of %d to %d characters: remove it, and lockstep launch writes a new one", path, minTokenLength, maxTokenBytes)
	}
	return token, nil
}

// deriveJobToken derives the token of a job from the user's secret, so that ranks of two jobs do
// not join each other. job may be "".
func deriveJobToken(secret, job string) string {
	m := hmac.New(sha256.New, []byte(secret))
	_, _ = io.WriteString(m, "lockstep job|"+job)
	return hex.EncodeToString(m.Sum(nil))
}

// loadToken reads LOCKSTEP_TOKEN or the file of TokenPath. The token may be missing only if
// rank 0 listens on a loopback address.
func (e *Env) loadToken(getenv func(string) string) error {
	if e.Token = getenv(tokenVariable); e.Token != "" {
		e.TokenFrom = tokenVariable
		return nil
	}
	path, err := TokenPath(getenv)
	if err != nil {
		path = "" // no home: no file
	} else if e.Token, err = readToken(path); err != nil {
		return err
	}
	if e.Token != "" {
		e.Token, e.TokenFrom = deriveJobToken(e.Token, e.job), path
		return nil
	}
	if !isLoopback(e.MasterAddr) {
		return fmt.Errorf("the ranks have no secret, so only a loopback address is allowed, but rank 0 listens on %s: give all ranks the same %s, or run lockstep launch once, which writes a secret for this user to %s (the home folder must be shared)", e.MasterAddr, tokenVariable, path)
	}
	return nil
}

// isLoopback reports whether host is a loopback address or "localhost". It does not resolve
// other names, because they may have different addresses on different machines.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
