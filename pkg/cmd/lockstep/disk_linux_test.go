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
	if err := syscall.Mount("none", p.logs, "tmpfs", 0, "size="+size); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := syscall.Unmount(p.logs, 0); err != nil {
			p.t.Error(err)
		}
	})
}

// fill leaves free bytes on the file system of the logs.
func (p *place) fill(free int64) (filler string) {
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
	at, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		err = f.Truncate(max(at-free, 0))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		p.t.Fatal(err)
	}
	return filler
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestFullDisk fills the disk up while a run goes on: to the last byte, so that
// the epoch's own lines have no room, and so that they have and a checkpoint
// has not. The error says which file and what to do, the earlier checkpoint
// reads, and with room again the run ends as if nothing had been.
func TestFullDisk(t *testing.T) {
	if !withMounts(t) {
		return
	}
	p := newPlace(t)
	p.mountLogs("8m")
	// A checkpoint of 0.3 MB.
	long := []string{"--set", "epochs=100", "--set", "model.base=4", "--set", "model.depth=2"}
	command := func(name string) []string {
		return append([]string{"launch", "--config", p.config, "--workers", "2", "--oversubscribe", "--study", "full", "--series", name}, long...)
	}
	c, out := p.begin(command("alone")...)
	if err := c.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := final(t, filepath.Join(p.logs, "full", "alone-n2-s1"))
	for _, tt := range []struct {
		name string
		free int64
		says []string
	}{
		{"epoch", 0, []string{" ended with exit code 1"}},                // rank 0, or the other one, which misses it
		{"checkpoint", 128 << 10, []string{"save checkpoint of epoch "}}, // of the checkpoint, or of run.json, which names it
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(p.logs, "full", tt.name+"-n2-s1")
			c, out := p.begin(command(tt.name)...)
			out.await(t, "epoch 10/100")
			filler := p.fill(tt.free)
			err := c.Wait()
			var e *exec.ExitError
			if !errors.As(err, &e) || e.ExitCode() != exitFailed {
				t.Fatalf("ended with %v, want exit code 1\n%s", err, out)
			}
			for _, want := range append(tt.says, dir, "no space left on device; free space on the disk of "+dir+", then continue with --resume") {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			p.leavesNothing(nil)
			r, err := runs.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(r.Epochs); n < 9 || n >= 100 {
				t.Errorf("%d epochs, want those before the disk was full", n)
			}
			if _, err := scaling.Read(dir); err != nil {
				t.Error(err)
			}
			if left := pendingIn(t, dir); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
			saved, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*"))
			if err != nil || len(saved) == 0 {
				t.Errorf("no checkpoint is left (%v)", err)
			}
			for _, path := range saved {
				if _, err := weights.Read(path); err != nil {
					t.Error(err)
				}
			}

			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			c, again := p.begin(append(command(tt.name), "--resume")...)
			if err := c.Wait(); err != nil {
				t.Fatalf("with room again: %v\n%s", err, again)
			}
			if strings.Contains(again.String(), "epoch 8/100") {
				t.Errorf("it began anew:\n%.500s", again)
			}
			if got := final(t, dir); got != want {
				t.Errorf("it ended otherwise: %s", difference(got, want))
			}
		})
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
		if !errors.As(err, &e) || e.ExitCode() != exitFailed {
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
