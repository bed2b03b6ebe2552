// Package jupyterhub_test runs the JupyterHub of this folder with two students.
package jupyterhub_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	address      = "http://127.0.0.1:8000"
	baseVariable = "LOCKSTEP_HUB_TEST" // the folder of the test, for the process in namespaces
	timeout      = 5 * time.Minute
	kernelFolder = "/usr/local/share/jupyter/kernels/lockstep"
	python       = "/usr/bin/python3" // Debian's, which has JupyterHub
)

// TestUsers runs the hub with the shipped config. Two students, who are Unix users, log in at the
// same time, start the Go kernel and train. Neither can read what the other has not shared.
//
// The hub runs in namespaces of its own: it has private copies of /etc and empty folders for the
// homes, the hub's state and the kernel of all users, so that the machine is not changed.
func TestUsers(t *testing.T) {
	if base := os.Getenv(baseVariable); base != "" {
		testUsers(t, base)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can create the users of a JupyterHub")
	}
	for _, name := range []string{"jupyterhub", "configurable-http-proxy", "unshare", "useradd"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s on this machine: jupyterhub and node-configurable-http-proxy are not installed", name)
		}
	}
	if err := exec.CommandContext(t.Context(), python, "-c", "import jupyterhub, notebook, pamela, requests, tornado").Run(); err != nil {
		t.Skip("no JupyterHub of Debian on this machine: jupyterhub and node-configurable-http-proxy are not installed")
	}
	if _, err := os.Stat(filepath.Join("..", "..", "kernels", ".build", "bin", "lockstep")); err != nil {
		t.Skip("the kernel has not been built: go run ./kernels/build")
	}
	namespaces := []string{"--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if out, err := exec.CommandContext(t.Context(), "unshare", append(namespaces, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespaces can be created here: %s", bytes.TrimSpace(out))
	}
	base, err := os.MkdirTemp("/var/tmp", "hubtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// bash is the first process of the namespace: it collects processes whose parents have ended.
	args := append(slices.Clone(namespaces), "bash", "-c", `"$@"; exit $?`, "bash", self, "-test.run=^TestUsers$", "-test.v", "-test.timeout="+(2*timeout).String())
	cmd := exec.CommandContext(t.Context(), "unshare", args...)
	cmd.Env = append(os.Environ(), baseVariable+"="+base)
	runtime.LockOSThread() // the hub ends with this process: the signal comes when its thread ends
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// run runs a program as root and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// prepare makes the folders private that the hub and its users write, and creates two students
// and the group of the class. It returns the path of the checkout, which may have been in /tmp.
func prepare(t *testing.T, base string) (root string) {
	t.Helper()
	checkout, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "--make-rprivate", "/")
	run(t, "ip", "link", "set", "lo", "up")
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	root = filepath.Join(base, "checkout")
	for _, dir := range []string{"checkout", "etc", "home", "share", "state", "tmp", "shm"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "mount", "--bind", checkout, root)
	run(t, "cp", "-a", "/etc/.", filepath.Join(base, "etc"))
	if err := os.MkdirAll("/var/lib/jupyterhub", 0o700); err != nil { // Debian's package has it
		t.Fatal(err)
	}
	for dir, target := range map[string]string{"etc": "/etc", "home": "/home", "share": "/usr/local/share", "state": "/var/lib/jupyterhub", "shm": "/dev/shm", "tmp": "/tmp"} {
		if dir == "shm" || dir == "tmp" {
			run(t, "chmod", "1777", filepath.Join(base, dir))
		}
		run(t, "mount", "--bind", filepath.Join(base, dir), target)
	}
	run(t, "groupadd", "--gid", "61000", "class")
	for i, name := range []string{"anna", "ben", "carl"} {
		args := []string{"--uid", strconv.Itoa(61001 + i), "--create-home", "--shell", "/bin/bash"}
		if name != "carl" { // who is in no class
			args = append(args, "--groups", "class")
		}
		run(t, "useradd", append(args, name)...)
		// Others may enter home folders on many machines.
		run(t, "chmod", "755", filepath.Join("/home", name))
		cmd := exec.CommandContext(t.Context(), "chpasswd")
		cmd.Stdin = strings.NewReader(name + ":" + password(name) + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("chpasswd: %v\n%s", err, out)
		}
	}
	return root
}

func password(name string) string { return "secret-of-" + name }

// startHub installs the kernel, the examples and the config as the README says, and starts the
// hub.
func startHub(t *testing.T, root string) {
	t.Helper()
	run(t, filepath.Join(root, "kernels/.build/bin/lockstep"), "kernel", "install", "--sys")
	run(t, "mkdir", "-p", "/usr/local/share/lockstep", "/etc/jupyterhub")
	run(t, "cp", "-R", filepath.Join(root, "notebooks"), "/usr/local/share/lockstep/notebooks")
	run(t, "cp", filepath.Join(root, "environment/jupyterhub/jupyterhub_config.py"), "/etc/jupyterhub/jupyterhub_config.py")
	hub := exec.CommandContext(context.Background(), python, "-m", "jupyterhub", "-f", "/etc/jupyterhub/jupyterhub_config.py")
	hub.Dir = "/var/lib/jupyterhub"
	hub.Env = []string{"PATH=/usr/bin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	logFile, err := os.Create("/var/lib/jupyterhub/log")
	if err != nil {
		t.Fatal(err)
	}
	hub.Stdout, hub.Stderr = logFile, logFile
	if err := hub.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hub.Process.Signal(syscall.SIGTERM)
		_ = hub.Wait() // an end by a signal is no failure
		text, err := os.ReadFile(logFile.Name())
		if err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the hub's log:\n%s", text)
		}
		for _, name := range []string{"anna", "ben"} {
			if bytes.Contains(text, []byte(password(name))) {
				t.Errorf("the hub's log has the password of %s", name)
			}
		}
	})
	await(t, "the hub answers", func() bool {
		r, err := http.Get(address + "/hub/login")
		if err != nil {
			return false
		}
		return r.Body.Close() == nil && r.StatusCode == http.StatusOK
	})
}

// await waits until a condition is fulfilled.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !condition(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not fulfilled after %v: %s", timeout, what)
		}
	}
}

// session is a student who is logged in, with a kernel.
type session struct {
	name, token string
	in          io.Writer
	out         *bufio.Reader
	errs        *bytes.Buffer
}

// logIn starts a session of a student.
func logIn(t *testing.T, root, name string) (*session, error) {
	cmd := exec.CommandContext(t.Context(), python, filepath.Join(root, "environment/jupyterhub/testdata/session.py"), address, name)
	cmd.Env = append(os.Environ(), "PASSWORD="+password(name))
	s := &session{name: name, errs: &bytes.Buffer{}}
	cmd.Stderr = s.errs
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
	s.in, s.out = in, bufio.NewReader(out)
	var first struct{ Token string }
	if err := s.read(&first); err != nil {
		return nil, err
	}
	s.token = first.Token
	return s, nil
}

// read reads a reply of testdata/session.py.
func (s *session) read(reply any) error {
	line, err := s.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, reply)
	}
	if err != nil {
		return fmt.Errorf("session of %s: %w\n%s", s.name, err, s.errs)
	}
	return nil
}

// run runs a cell and returns what it printed.
func (s *session) run(cell string) (string, error) {
	line, err := json.Marshal(cell)
	if err != nil {
		return "", err
	}
	if _, err := s.in.Write(append(line, '\n')); err != nil {
		return "", fmt.Errorf("session of %s: %w\n%s", s.name, err, s.errs)
	}
	var reply struct{ Text, Error string }
	if err := s.read(&reply); err != nil {
		return "", err
	}
	if reply.Error != "" {
		return reply.Text, fmt.Errorf("cell of %s: %s", s.name, reply.Error)
	}
	return reply.Text, nil
}

// as returns a command that a student runs, outside the hub.
func as(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = u.HomeDir
	cmd.Env = []string{"PATH=/usr/bin:/bin:" + kernelFolder, "HOME=" + u.HomeDir, "USER=" + name, "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{61000}}}
	return cmd
}

// tiny is a network and a data set with which an epoch takes milliseconds.
const tiny = `"model.base=2", "model.depth=1", "data.count=8", "data.height=16", "data.width=16", "data.test_images=2", "batch=1"`

// trainingCell trains one epoch and prints whether it succeeded, the user's id and the hard
// limits of the process.
const trainingCell = `import ("fmt"; "os"; "os/exec"; "syscall"; "lockstep/pkg/launch"; "lockstep/pkg/notebook")
ctx := notebook.Context()
job, err := launch.Local(ctx, launch.Sweep{Config: "unet2d-cells", Workers: []int{1}, Epochs: 1, Set: []string{` + tiny + `}})
if err == nil { err = job.Wait(ctx) }
var memory syscall.Rlimit
limits := syscall.Getrlimit(syscall.RLIMIT_DATA, &memory)
fmt.Println(err, os.Getuid(), limits, memory.Max>>20)`

func testUsers(t *testing.T, base string) {
	root := prepare(t, base)
	startHub(t, root)

	sessions, errs := make([]*session, 2), make([]error, 2)
	var wg sync.WaitGroup
	for i, name := range []string{"anna", "ben"} {
		wg.Go(func() {
			s, err := logIn(t, root, name)
			if err == nil {
				sessions[i] = s
				var text string
				if text, err = s.run(trainingCell); err == nil && !strings.HasSuffix(text, fmt.Sprintf("<nil> %d <nil> 4096\n", 61001+i)) {
					err = fmt.Errorf("the cell of %s printed %q, want that it ends with no error, the user's id and 4096 MiB", name, text)
				}
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Run("login", testLogin)
	t.Run("examples", testExamples)
	t.Run("limits", func(t *testing.T) { testLimits(t, sessions[0]) })
	t.Run("privacy", func(t *testing.T) { testPrivacy(t, sessions[0], sessions[1]) })
	t.Run("rendezvous", testRendezvous)
	t.Run("sharing", testSharing)
}

// testLogin: a wrong password and a user who is not in the class are refused.
func testLogin(t *testing.T) {
	for name, word := range map[string]string{"anna": "wrong", "carl": password("carl")} {
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		r, err := client.PostForm(address+"/hub/login", url.Values{"username": {name}, "password": {word}})
		if err != nil {
			t.Fatal(err)
		}
		// JupyterHub 3 shows the form again; a login redirects to the student's server.
		if r.StatusCode != http.StatusForbidden && (r.StatusCode != http.StatusOK || len(r.Cookies()) > 0) {
			t.Errorf("login of %s with password %s: %s with cookies %v, want that it is refused", name, word, r.Status, r.Cookies())
		}
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

// testExamples: both students have private copies of the notebooks.
func testExamples(t *testing.T) {
	for i, name := range []string{"anna", "ben"} {
		path := filepath.Join("/home", name, "lockstep-examples", "unet-scaling.ipynb")
		s, err := os.Stat(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if owner := s.Sys().(*syscall.Stat_t).Uid; int(owner) != 61001+i || s.Mode().Perm() != 0o600 {
			t.Errorf("%s has owner %d and mode %v, want only %s to read and write it", path, owner, s.Mode(), name)
		}
	}
}

// testLimits: a process of a student can neither use more memory than allowed nor raise the
// limit. The mapping is not written, so that it needs no memory.
func testLimits(t *testing.T, s *session) {
	text, err := s.run(`more := syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: 8 << 30, Max: 8 << 30})
_, mapped := syscall.Mmap(-1, 0, 5<<30, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
shell, _ := exec.Command("/bin/bash", "-c", "ulimit -Hd; ulimit -Hu; ulimit -Hc; umask; ulimit -d unlimited || echo refused").Output()
fmt.Printf("%v; %v; %q", more, mapped, shell)`)
	if want := `operation not permitted; cannot allocate memory; "4194304\n1000\n0\n0077\nrefused\n"`; err != nil || text != want {
		t.Errorf("got %q, %v, want %q", text, err, want)
	}
}

// testPrivacy: ben can read nothing of anna's, although he may enter her home folder, and his
// token does not open her server.
func testPrivacy(t *testing.T, anna, ben *session) {
	for _, name := range []string{"anna", "ben"} { // writes the user's secret
		if out, err := as(t, name, filepath.Join(kernelFolder, "lockstep"), "launch", "--workers", "1", "--", "true").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	text, err := anna.run("fmt.Print(os.Getpid(), \" \", job.Dir())")
	pid, dir, _ := strings.Cut(text, " ")
	if err != nil || !strings.HasPrefix(dir, "/home/anna/logs/") {
		t.Fatalf("got %q, %v, want a process and a folder below /home/anna/logs", text, err)
	}
	for _, path := range []string{
		"/home/anna/.local/state/lockstep/token", dir, filepath.Join(dir, "ddp-n1-s1", "run.json"), filepath.Join(dir, "ddp-n1-s1", "out.log"),
		"/home/anna/lockstep-examples", "/home/anna/.local/share/jupyter/runtime", "/tmp/lockstep-61001", "/proc/" + pid + "/environ", "/proc/" + pid + "/mem",
	} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%v: the test has nothing to check", err)
		}
		if out, err := as(t, "ben", "ls", path+"/").CombinedOutput(); err == nil {
			t.Errorf("ben can list %s:\n%s", path, out)
		}
		if out, err := as(t, "ben", "head", "-c", "20", path).CombinedOutput(); err == nil {
			t.Errorf("ben can read %s: %q", path, out)
		}
	}
	// Whatever else anna's processes have written.
	for _, top := range []string{"/home/anna", "/tmp", "/dev/shm"} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			isSkeleton := filepath.Dir(path) == "/home/anna" && strings.HasPrefix(d.Name(), ".bash") || d.Name() == ".profile" || path == "/home/anna"
			if info.Sys().(*syscall.Stat_t).Uid != 61001 || isSkeleton || d.Type() == fs.ModeSymlink {
				return nil
			}
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v, want only anna to use it", path, info.Mode())
			}
			if d.IsDir() && info.Mode().Perm()&0o077 == 0 {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{"/user/anna/api/contents", "/user/anna/api/kernels", "/hub/api/users/anna", "/hub/api/users"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "token "+ben.token)
		r, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if r.StatusCode != http.StatusForbidden && r.StatusCode != http.StatusNotFound {
			t.Errorf("ben's token at %s: %s, want that it is refused", path, r.Status)
		}
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	secrets := map[string]string{} // and whose they are
	for _, name := range []string{"anna", "ben"} {
		text, err := os.ReadFile(filepath.Join("/home", name, ".local/state/lockstep/token"))
		if err != nil {
			t.Fatal(err)
		}
		if other := secrets[string(text)]; other != "" {
			t.Errorf("%s and %s have the same secret", other, name)
		}
		secrets[string(text)] = name
	}
}

// testRendezvous: ben's worker cannot join anna's run, whose port is open to him.
func testRendezvous(t *testing.T) {
	const port = "29511"
	worker := func(name, rank string) (*exec.Cmd, *bytes.Buffer) {
		args := []string{"lockstep", "train", "--config", "unet2d-cells", "--epochs", "1", "--run", "/home/" + name + "/logs/joined"}
		for s := range strings.SplitSeq(tiny, ", ") {
			args = append(args, "--set", strings.Trim(s, `"`))
		}
		args[0] = filepath.Join(kernelFolder, "lockstep")
		cmd := as(t, name, args...)
		cmd.Env = append(cmd.Env, "RANK="+rank, "WORLD_SIZE=2", "LOCAL_RANK="+rank, "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		return cmd, &out
	}
	first, firstOut := worker("anna", "0")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "anna's rank 0 listens", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		return err == nil && c.Close() == nil
	})
	stranger, strangerOut := worker("ben", "1")
	if err := stranger.Run(); err == nil {
		t.Errorf("ben's worker has joined anna's run:\n%s", strangerOut)
	}
	second, secondOut := worker("anna", "1")
	if err := errors.Join(second.Run(), first.Wait()); err != nil {
		t.Errorf("anna's own workers: %v\nrank 0: %s\nrank 1: %s\nben: %s", err, firstOut, secondOut, strangerOut)
	}
	t.Logf("ben's worker: %s", strangerOut)
}

// testSharing: after the commands of the README, ben can read anna's study, but not change it.
func testSharing(t *testing.T) {
	const study = "/home/anna/logs/unet2d-cells"
	table := func() ([]byte, error) {
		return as(t, "ben", filepath.Join(kernelFolder, "lockstep"), "scaling", study, "--format", "csv").CombinedOutput()
	}
	if out, err := table(); err == nil {
		t.Errorf("ben can read the study before it is shared:\n%s", out)
	}
	if out, err := as(t, "anna", "sh", "-c", "chmod 711 ~ ~/logs && chgrp -R class "+study+" && chmod -R g+rX "+study).CombinedOutput(); err != nil {
		t.Fatalf("share the study: %v\n%s", err, out)
	}
	if out, err := table(); err != nil || !bytes.Contains(out, []byte("unet2d-cells")) {
		t.Errorf("ben cannot read the shared study: %v\n%s", err, out)
	}
	if out, err := as(t, "ben", "sh", "-c", "touch "+study+"/new || rm -r "+study+"/ddp-n1-s1 || ls ~anna/logs").CombinedOutput(); err == nil {
		t.Errorf("ben can change the shared study, or list the others:\n%s", out)
	}
}
