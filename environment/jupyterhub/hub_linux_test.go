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
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
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
	if testing.Short() {
		t.Skip("slow")
	}
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
	if err := os.Mkdir(filepath.Dir(coresFolder), 0o755); err == nil { // the namespace needs it as a mount point
		t.Cleanup(func() { _ = os.Remove(filepath.Dir(coresFolder)) })
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
	if _, err := os.Stat(filepath.Join(base, clusterFolder+noSlurm)); err == nil {
		t.Run("students", func(*testing.T) {}) // the summary counts subtests
		t.Run("slurm", func(t *testing.T) {
			t.Skip("slurm-wlm, munge, slurmdbd, mariadb-server and slurm-wlm-mysql-plugin are not installed")
		})
	}
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

// prepare makes the folders private that the hub and its users write, and creates the students
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
	for _, dir := range []string{"checkout", "etc", "home", "share", "state", "tmp", "shm", "run"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "mount", "--bind", checkout, root)
	run(t, "cp", "-a", "/etc/.", filepath.Join(base, "etc"))
	if err := os.MkdirAll("/var/lib/jupyterhub", 0o700); err != nil { // Debian's package has it
		t.Fatal(err)
	}
	for dir, target := range map[string]string{"etc": "/etc", "home": "/home", "share": "/usr/local/share", "state": "/var/lib/jupyterhub", "shm": "/dev/shm", "tmp": "/tmp", "run": filepath.Dir(coresFolder)} {
		if dir == "shm" || dir == "tmp" {
			run(t, "chmod", "1777", filepath.Join(base, dir))
		}
		run(t, "mount", "--bind", filepath.Join(base, dir), target)
	}
	run(t, "groupadd", "--gid", "61000", "class")
	for i, name := range append(classmates(), "carl") {
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
// hub. The students get slurmConf in the variable SLURM_CONF.
func startHub(t *testing.T, root, slurmConf string) {
	t.Helper()
	run(t, filepath.Join(root, "kernels/.build/bin/lockstep"), "kernel", "install", "--sys")
	run(t, "mkdir", "-p", "/usr/local/share/lockstep", "/etc/jupyterhub")
	run(t, "cp", "-R", filepath.Join(root, "notebooks"), "/usr/local/share/lockstep/notebooks")
	run(t, "cp", filepath.Join(root, "environment/jupyterhub/jupyterhub_config.py"), "/etc/jupyterhub/jupyterhub_config.py")
	hub := exec.CommandContext(context.Background(), python, "-m", "jupyterhub", "-f", "/etc/jupyterhub/jupyterhub_config.py")
	hub.Dir = "/var/lib/jupyterhub"
	hub.Env = []string{"PATH=/usr/bin:/bin", "HOME=/root", "LANG=C.UTF-8", "SLURM_CONF=" + slurmConf}
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

// run executes a cell and returns its output.
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

// request asks the hub, or a student's server, with the student's token.
func (s *session) request(t *testing.T, method, path string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "token "+s.token)
	r, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if err := errors.Join(err, r.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
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
	cmd.Env = []string{"PATH=/usr/bin:/bin:" + kernelFolder, "HOME=" + u.HomeDir, "USER=" + name, "LANG=C.UTF-8", "SLURM_CONF=" + os.Getenv("SLURM_CONF")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{61000}}}
	return cmd
}
