package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
	"lockstep/pkg/weights"
)

// inside is set in the process that may mount.
const inside = "LOCKSTEP_TEST_MOUNTS"

// withMounts runs the rest of the test in a process with mounts of its own,
// which end with it. It says whether this is that process.
func withMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) == "1" {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	// Where the root folder is no mount, as after chroot, mounts cannot be kept private.
	probe := exec.Command("sh", "-c", `mount --make-rprivate / && mount -t tmpfs none "$0"`, t.TempDir())
	probe.SysProcAttr = attr
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("tmpfs: this user may not mount one: %v %s", err, out)
	}
	c := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), inside+"=1")
	c.SysProcAttr = attr
	out, err := c.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// mountLogs puts the logs of p on a file system of that many bytes.
func (p *place) mountLogs(size string) {
	p.t.Helper()
	mount(p.t, p.logs, size)
}

// mount mounts a file system of that many bytes at dir.
func mount(t *testing.T, dir, size string) {
	t.Helper()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

// fill leaves no byte free on the file system of the logs.
func (p *place) fill() (filler string) {
	p.t.Helper()
	filler = filepath.Join(p.logs, "filler")
	f, err := os.Create(filler)
	if err != nil {
		p.t.Fatal(err)
	}
	_, err = io.Copy(f, zeros{})
	if !errors.Is(err, syscall.ENOSPC) {
		p.t.Fatalf("the disk did not fill up: %v", err)
	}
	if err := f.Close(); err != nil {
		p.t.Fatal(err)
	}
	return filler
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestFullDisk fills the disk of the logs while a run goes on, so that an epoch's own lines have
// no room; and it links the checkpoints of a run to another disk, with room for two of them.
// The error says which file and what to do, the earlier checkpoint reads, and with room again the
// run ends as if nothing had been.
func TestFullDisk(t *testing.T) {
	if !withMounts(t) {
		return
	}
	p := newPlace(t)
	p.mountLogs("8m")
	begin := func(name string, options ...string) (c *exec.Cmd, out *said, dir string) {
		// A checkpoint of 108 kB.
		long := []string{"--set", "epochs=100", "--set", "model.base=4", "--set", "model.depth=2"}
		args := append([]string{"launch", "--config", p.config, "--workers", "2", "--oversubscribe", "--study", "full", "--series", name}, long...)
		c, out = p.begin(append(args, options...)...)
		return c, out, filepath.Join(p.logs, "full", name+"-n2-s1")
	}
	c, out, dir := begin("alone")
	if err := c.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := final(t, dir)
	resumes := func(t *testing.T, name string) {
		t.Helper()
		c, out, dir := begin(name, "--resume")
		if err := c.Wait(); err != nil {
			t.Fatalf("with room again: %v\n%s", err, out)
		}
		if strings.Contains(out.String(), "epoch 1/100") {
			t.Errorf("it began anew:\n%.500s", out)
		}
		if got := final(t, dir); got != want {
			t.Errorf("it ended otherwise: %s", difference(got, want))
		}
	}

	t.Run("epoch", func(t *testing.T) {
		c, out, dir := begin("epoch")
		out.await(t, "epoch 10/100")
		filler := p.fill()
		endsOnFullDisk(t, p, c, out, dir, 9,
			" ended with exit code 1", // rank 0, or the other one, which misses it
			"; free space on the disk of "+dir)
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		resumes(t, "epoch")
	})

	t.Run("checkpoint", func(t *testing.T) {
		scratch := t.TempDir()
		mount(t, scratch, "256k")
		checkpoints := filepath.Join(p.logs, "full", "checkpoint-n2-s1", "checkpoints")
		if err := errors.Join(os.Mkdir(filepath.Dir(checkpoints), 0o755), os.Symlink(scratch, checkpoints)); err != nil {
			t.Fatal(err)
		}
		c, out, dir := begin("checkpoint")
		endsOnFullDisk(t, p, c, out, dir, 3,
			"save checkpoint of epoch 3: ",
			filepath.Join(checkpoints, "epoch-0003"),
			"; free space on the disk of "+checkpoints+", then continue with --resume")
		if err := syscall.Mount("none", scratch, "tmpfs", syscall.MS_REMOUNT, "size=8m"); err != nil {
			t.Fatal(err)
		}
		resumes(t, "checkpoint")
	})
}

// endsOnFullDisk waits for the end of the run c, whose disk is full, and checks what it says and
// leaves: epochs or more in its record, and checkpoints that read.
func endsOnFullDisk(t *testing.T, p *place, c *exec.Cmd, out *said, dir string, epochs int, says ...string) {
	t.Helper()
	err := c.Wait()
	var e *exec.ExitError
	if !errors.As(err, &e) || e.ExitCode() != cli.ExitFailed {
		t.Fatalf("ended with %v, want exit code 1\n%s", err, out)
	}
	for _, want := range append(says, "no space left on device; free space on the disk of ") {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	p.leavesNothing(nil)
	r, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.Epochs); n < epochs || n >= 100 {
		t.Errorf("%d epochs, want at least the %d before the disk was full", n, epochs)
	}
	if _, err := scaling.Read(dir); err != nil {
		t.Error(err)
	}
	if left := pendingIn(t, dir); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	saved, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*.safetensors"))
	if err != nil || len(saved) == 0 {
		t.Errorf("no checkpoint is left (%v)", err)
	}
	for _, path := range saved {
		if _, err := weights.Read(path); err != nil {
			t.Error(err)
		}
	}
}

// TestReadOnlyLogs: what lies on a disk that can only be read is read; what
// would have to be written is an error that says where else.
func TestReadOnlyLogs(t *testing.T) {
	if !withMounts(t) {
		return
	}
	p := newPlace(t)
	p.mountLogs("8m")
	var out bytes.Buffer
	if err := p.launch(&out, 1, 1).Run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if err := syscall.Mount("none", p.logs, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"scaling", "tiny"}, {"verify", "run", p.run(1, 1)}} {
		out.Reset()
		if err := p.command(&out, args...).Run(); err != nil {
			t.Errorf("lockstep %v: %v\n%s", args, err, &out)
		}
	}
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"launch", "--config", p.config, "--seeds", "2"}, []string{"logs/tiny", "read-only file system", "LOCKSTEP_LOGS"}},
		{[]string{"launch", "--config", p.config, "--study", "other"}, []string{"other", "read-only file system", "LOCKSTEP_LOGS"}},
		{[]string{"train", "--config", p.config, "--run", p.run(1, 3)}, []string{"ddp-n1-s3", "read-only file system", "LOCKSTEP_LOGS"}},
		{[]string{"launch", "--config", p.config, "--epochs", "12", "--resume"}, []string{"logs/tiny", "read-only file system"}},
		{[]string{"train", "--config", p.config, "--run", p.run(1, 1), "--epochs", "12", "--resume"}, []string{"ddp-n1-s1", "read-only file system"}},
	} {
		out.Reset()
		err := p.command(&out, tt.args...).Run()
		var e *exec.ExitError
		if !errors.As(err, &e) || e.ExitCode() != cli.ExitFailed {
			t.Errorf("lockstep %v ended with %v, want exit code 1\n%s", tt.args, err, &out)
		}
		for _, want := range tt.says {
			if !strings.Contains(out.String(), want) {
				t.Errorf("lockstep %v: no %q in\n%s", tt.args, want, &out)
			}
		}
	}
	p.leavesNothing(nil)
	if got := fmt.Sprint(pendingIn(t, p.logs)); got != "[]" {
		t.Errorf("%s are left", got)
	}
}
