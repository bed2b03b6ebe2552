package jupyterhub_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

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
	cluster := startCluster(t, root, base)
	startHub(t, root, cluster.config())
	t.Run("without the notebook", testJupyterLab)

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
	t.Run("slurm", func(t *testing.T) { testSlurm(t, root, cluster, sessions) })
	t.Run("privacy", func(t *testing.T) { testPrivacy(t, sessions[0], sessions[1]) })
	t.Run("rendezvous", testRendezvous)
	t.Run("sharing", testSharing)
	t.Run("second login", func(t *testing.T) { testSecondLogin(t, sessions[1]) })
	t.Run("cores", testCores)
}

// testJupyterLab: the config is valid without the two lines that a site removes for JupyterLab.
func testJupyterLab(t *testing.T) {
	const load = `import sys, tempfile
from traitlets.config.loader import PyFileConfigLoader
lines = open("/etc/jupyterhub/jupyterhub_config.py").read().split("\n")
at = next(i for i, line in enumerate(lines) if line.endswith("for JupyterLab, remove these two lines."))
with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
    f.write("\n".join(lines[:at] + lines[at + 3:]))
    f.flush()
    c = PyFileConfigLoader(f.name).load_config()
print(sorted(c.Spawner.environment), "default_url" in c.Spawner)`
	const want = "['LOCKSTEP_CORES', 'LOCKSTEP_CORES_WAIT', 'LOCKSTEP_LOCKS'] False\n"
	if got := run(t, python, "-c", load); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
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
	if out, err := as(t, "ben", "mkdir", "/tmp/lockstep-61001").CombinedOutput(); err != nil { // a name that anna's processes could want
		t.Fatalf("%v\n%s", err, out)
	}
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
		"/home/anna/lockstep-examples", "/home/anna/.local/share/jupyter/runtime", "/home/anna/.local/state/lockstep", "/proc/" + pid + "/environ", "/proc/" + pid + "/mem",
		"/home/anna/logs/trained/ddp-n2-s1/worker-0.log", "/var/lib/jupyterhub/jupyterhub.sqlite",
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
		if status, _ := ben.request(t, http.MethodGet, path); status != http.StatusForbidden && status != http.StatusNotFound {
			t.Errorf("ben's token at %s: status %d, want that it is refused", path, status)
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
		args := []string{"lockstep", "train", "--config", "unet2d-cells", "--epochs", "1", "--run", filepath.Join("/home", name, "logs", "joined")}
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

// testSecondLogin: the next start of a server changes nothing in the copy of the examples, but adds a dated copy
// because the examples have changed.
func testSecondLogin(t *testing.T, ben *session) {
	const own = "/home/ben/lockstep-examples/README.md"
	if err := os.WriteFile(own, []byte("my notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	const removed = "/home/ben/lockstep-examples/strategies.ipynb"
	if err := os.Remove(removed); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/usr/local/share/lockstep/notebooks/README.md", []byte("new notes"), 0o644); err != nil {
		t.Fatal(err)
	}
	if status, body := ben.request(t, http.MethodDelete, "/hub/api/users/ben/server"); status >= 400 {
		t.Fatalf("stop the server: status %d: %s", status, body)
	}
	isReady := func() bool {
		_, body := ben.request(t, http.MethodGet, "/hub/api/users/ben")
		return strings.Contains(body, `"ready": true`)
	}
	await(t, "the server has stopped and starts again", func() bool {
		status, _ := ben.request(t, http.MethodPost, "/hub/api/users/ben/server") // refused while it stops
		return status == http.StatusCreated || status == http.StatusAccepted
	})
	await(t, "the server is ready", isReady)
	if text, err := os.ReadFile(own); err != nil || string(text) != "my notes" {
		t.Errorf("%s: got %q, %v, want what ben wrote", own, text, err)
	}
	if _, err := os.Stat(removed); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: got %v, want that it is still removed", removed, err)
	}
	added := "/home/ben/lockstep-examples-" + time.Now().Format(time.DateOnly) + "/README.md"
	if text, err := os.ReadFile(added); err != nil || string(text) != "new notes" {
		t.Errorf("%s: got %q, %v, want the new file", added, text, err)
	}
}
