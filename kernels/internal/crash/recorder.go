package crash

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"
)

// When the Go runtime ends a process, it writes the stacks of all goroutines to standard error, which is
// Jupyter's log, and to the output of debug.SetCrashOutput. Those of 100,000 goroutines have 400 MB, and
// nothing else in the process runs meanwhile. So the kernel starts this executable again as a recorder,
// which reads that output from a pipe and kills the kernel after maxDump bytes.

const (
	// recorderName is the recorder's argv[0]. The kernel's pid follows it.
	recorderName = "lockstep-kernel crash recorder"
	// maxDump limits the recorded message and stacks, in bytes.
	maxDump = 1 << 20
	// recorderTimeout limits how long a new kernel waits for its predecessor's recorder to end.
	recorderTimeout = 30 * time.Second
)

// init runs the recorder in place of main if this process was started as one.
func init() {
	if len(os.Args) == 2 && os.Args[0] == recorderName {
		record(os.Args[1])
		os.Exit(0)
	}
}

// startRecorder starts the recorder, which appends the runtime's output to the file at path.
func startRecorder(path string) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	// The recorder has the lock until it ends. Some network file systems have no locks.
	_ = syscall.Flock(int(out.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	var fds [2]int // not os.Pipe: the runtime needs a pipe that blocks
	syscall.ForkLock.RLock()
	err = syscall.Pipe(fds[:])
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	r, w := os.NewFile(uintptr(fds[0]), "crash pipe"), os.NewFile(uintptr(fds[1]), "crash pipe")
	defer r.Close()
	defer w.Close() // the runtime has a copy
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Args = []string{recorderName, strconv.Itoa(os.Getpid())}
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stdin, cmd.Stdout = r, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no signal for the kernel's process group ends it
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start crash recorder: %w", err)
	}
	return errors.Join(debug.SetCrashOutput(w, debug.CrashOptions{}), cmd.Process.Release())
}

// record is the main function of a recorder. It copies standard input to standard output until the kernel
// ends, and kills the kernel, whose pid is given, after maxDump bytes.
func record(kernel string) {
	n, err := io.CopyN(os.Stdout, os.Stdin, maxDump)
	if err == nil && n == maxDump {
		fmt.Println("\n[the stacks of the other goroutines are left out]")
	}
	if n > 0 && !errors.Is(err, io.EOF) && strconv.Itoa(os.Getppid()) == kernel { // too much, or the disk is full
		_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
	}
}

func awaitRecorder(f *os.File) {
	for begin := time.Now(); time.Since(begin) < recorderTimeout; time.Sleep(5 * time.Millisecond) {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			return
		}
	}
}
