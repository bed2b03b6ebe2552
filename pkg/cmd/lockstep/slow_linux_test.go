package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe" //nolint:depguard // for system calls of this test, which no package has

	"golang.org/x/sys/unix"
)

// The test binary started as "slowly DIR COMMAND ARGS…" runs a command for which
// the files below DIR are on a slow disk: the system calls that write to them, of
// the command and all that it starts, take so long.
const (
	slowWrite = 15 * time.Millisecond
	slowSync  = 250 * time.Millisecond

	exitNoSlowness = 77 // of "slowly" where it may not hold up system calls
)

func init() {
	if len(os.Args) > 3 && os.Args[1] == "slowly" {
		os.Exit(slowly(os.Args[2], os.Args[3:]))
	}
}

// slowly holds the calls up by seccomp's user notification, which needs no
// rights: the kernel asks this process before each of them.
func slowly(dir string, command []string) int {
	listeners := make(chan int, 1)
	go func() {
		runtime.LockOSThread()
		holdUp(<-listeners, dir)
	}()
	// The filter is that of this thread and of what it starts.
	runtime.LockOSThread()
	listener, err := askBefore([]uint32{unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FSYNC, unix.SYS_FDATASYNC})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitNoSlowness
	}
	listeners <- listener
	c := exec.Command(command[0], command[1:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	err = c.Run()
	var e *exec.ExitError
	switch {
	case errors.As(err, &e):
		return e.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// askBefore installs a filter for these system calls and returns where the
// kernel asks.
func askBefore(calls []uint32) (listener int, err error) {
	const ask, allow = unix.SECCOMP_RET_USER_NOTIF, unix.SECCOMP_RET_ALLOW
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the number of the call
	for i, nr := range calls {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(calls) - i), K: nr})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: allow}, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: ask})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("seccomp: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return 0, fmt.Errorf("seccomp: %w", errno)
	}
	return int(fd), nil
}

// question and reply are struct seccomp_notif and seccomp_notif_resp of
// linux/seccomp.h.
type question struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type reply struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

const goOnWithCall = 1 // SECCOMP_USER_NOTIF_FLAG_CONTINUE

// holdUp answers the questions, those about files below dir after a while.
func holdUp(listener int, dir string) {
	for {
		var q question
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&q))); errno != 0 {
			if errno == unix.EINTR || errno == unix.ENOENT { // the one that asked was killed
				continue
			}
			return
		}
		go func() {
			file, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", q.pid, q.args[0]))
			if err == nil && strings.HasPrefix(file, dir+"/") {
				if q.nr == unix.SYS_FSYNC || q.nr == unix.SYS_FDATASYNC {
					time.Sleep(slowSync)
				} else {
					time.Sleep(slowWrite)
				}
			}
			r := reply{id: q.id, flags: goOnWithCall}
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
		}()
	}
}

// TestSlowLogs: on a slow file system, here one whose system calls are held up,
// the run is the same, nothing of it is lost, and it says why it takes so long.
// On a fast one it says nothing.
func TestSlowLogs(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	p := newPlace(t)
	logs, err := filepath.EvalSymlinks(p.logs)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := p.launch(&out, 2, 1, "--epochs", "3", "--series", "fast").Run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	fast := filepath.Join(p.logs, "tiny", "fast-n2-s1")
	want := final(t, fast)

	var slowOut bytes.Buffer
	c := p.launch(&slowOut, 2, 1, "--epochs", "3", "--series", "slow")
	c.Args = slices.Concat([]string{self, "slowly", logs, c.Path}, c.Args[1:])
	c.Path = self
	err = c.Run()
	var e *exec.ExitError
	if errors.As(err, &e) && e.ExitCode() == exitNoSlowness {
		t.Skipf("system calls cannot be held up here: %s", &slowOut)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, &slowOut)
	}
	p.leavesNothing(nil)
	slow := filepath.Join(p.logs, "tiny", "slow-n2-s1")
	if got := final(t, slow); got != want {
		t.Errorf("it ended otherwise: %s", difference(got, want))
	}
	note := "note: writing to " + slow + " took "
	advice := "its file system is slow, which the times of the steps do not show; put the logs on another disk (--logs, LOCKSTEP_LOGS), or save less often (checkpoint.every)"
	log, err := os.ReadFile(filepath.Join(slow, "out.log"))
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"out.log": string(log), "the terminal": slowOut.String()} {
		if strings.Count(text, note) != 1 || !strings.Contains(text, advice) {
			t.Errorf("%s does not say once %q\n%s", where, note+"… "+advice, text)
		}
	}
	log, err = os.ReadFile(filepath.Join(fast, "out.log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(log), "is slow") {
		t.Errorf("of a fast file system it says\n%s", log)
	}
}
