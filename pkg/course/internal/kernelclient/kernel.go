// Package kernelclient starts a Jupyter kernel and runs cells in it, as a notebook does, without Python.
//
// It speaks version 5.3 of Jupyter's messaging protocol
// (https://jupyter-client.readthedocs.io/en/stable/messaging.html) with a kernel that it has started itself. Cells
// may be wrong or hostile: each call ends with its context, even if the kernel has ended or does not answer.
package kernelclient

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/go-zeromq/zmq4"
)

const (
	dialPause      = 10 * time.Millisecond  // between two attempts to reach a kernel that is starting
	infoPause      = 100 * time.Millisecond // between two requests to a kernel that may not know the subscription yet
	interruptPause = time.Second            // between two interrupts: the first may come before the cell begins
	maxInterrupts  = 5                      // then the kernel is killed
	graceTime      = 5 * time.Second        // for a kernel to shut down before it is killed
)

// A Kernel is a running Jupyter kernel. It runs one cell at a time. Its methods may be called concurrently.
type Kernel struct {
	folder       string // contains the connection file, the sockets and the kernel's standard error
	session      session
	cmd          *exec.Cmd
	ended        chan struct{} // closed when the process has ended
	shell, iopub zmq4.Socket
	messages     chan message // from both sockets
	receivers    sync.WaitGroup
	mu           sync.Mutex // held while a cell runs
}

// Start starts the program kernel, such as lockstep-kernel, in the folder dir with the environment env (as
// os.Environ returns it), and waits until it answers. It listens on sockets in a private folder. Start returns an
// error if the kernel ends before it answers, or if ctx ends. The caller must call Close.
func Start(ctx context.Context, kernel, dir string, env []string) (*Kernel, error) {
	folder, err := os.MkdirTemp("", "kernel-")
	if err != nil {
		return nil, fmt.Errorf("start kernel: %w", err)
	}
	k := &Kernel{
		folder: folder, session: session{id: rand.Text(), key: rand.Text()},
		ended: make(chan struct{}), messages: make(chan message),
		shell: zmq4.NewDealer(context.Background(), zmq4.WithDialerMaxRetries(0)), iopub: zmq4.NewSub(context.Background(), zmq4.WithDialerMaxRetries(0)),
	}
	if err := k.startProcess(kernel, dir, env); err != nil {
		return nil, errors.Join(fmt.Errorf("start kernel %s: %w", kernel, err), os.RemoveAll(folder))
	}
	if err := k.connect(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start kernel %s: %w", kernel, err), k.Close())
	}
	return k, nil
}

func (k *Kernel) startProcess(kernel, dir string, env []string) error {
	connection, err := json.Marshal(map[string]any{
		"transport": "ipc", "ip": filepath.Join(k.folder, "socket"), "key": k.session.key, "signature_scheme": "hmac-sha256",
		"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5, // the kernel appends ":1" to "ip"
	})
	if err != nil {
		return fmt.Errorf("write connection file: %w", err)
	}
	const longest = 100 // bytes of a socket's path, for Linux and macOS
	file := filepath.Join(k.folder, "connection.json")
	if len(file) > longest {
		return fmt.Errorf("the path of the folder for its sockets, %s, is too long: set TMPDIR to a shorter one", k.folder)
	}
	if err := os.WriteFile(file, connection, 0o600); err != nil {
		return err
	}
	stderr, err := os.Create(filepath.Join(k.folder, "stderr"))
	if err != nil {
		return err
	}
	defer stderr.Close()
	k.cmd = exec.Command(kernel, file)
	k.cmd.Dir, k.cmd.Env, k.cmd.Stderr = dir, env, stderr
	k.cmd.SysProcAttr = processAttributes()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Linux ends the kernel with the thread that started it
		err := k.cmd.Start()
		started <- err
		if err == nil {
			_ = k.cmd.Wait() // endedError has the process's state
			close(k.ended)
		}
	}()
	return <-started
}

// connect connects the sockets as soon as the kernel listens, and waits until outputs arrive.
func (k *Kernel) connect(ctx context.Context) error {
	if err := k.iopub.SetOption(zmq4.OptionSubscribe, ""); err != nil {
		return fmt.Errorf("subscribe to outputs: %w", err)
	}
	for port, socket := range []zmq4.Socket{k.shell, k.iopub} {
		for socket.Dial(fmt.Sprintf("ipc://%s:%d", filepath.Join(k.folder, "socket"), port+1)) != nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-k.ended:
				return k.endedError()
			case <-time.After(dialPause):
			}
		}
		k.receivers.Go(func() { k.receive(socket) })
	}
	ask := time.After(0)
	for replied, published := false, false; !replied || !published; {
		select {
		case <-ask:
			if err := k.session.sendMessage(k.shell, rand.Text(), "kernel_info_request", struct{}{}); err != nil {
				return fmt.Errorf("ask the kernel for its description: %w", err)
			}
			ask = time.After(infoPause)
		case m := <-k.messages:
			replied = replied || m.kind == "kernel_info_reply"
			published = published || m.kind == "status"
		case <-k.ended:
			return k.endedError()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// receive passes messages on until the connection ends. If the kernel still runs then, because a
// cell closed the connection, receive kills it: nothing can reach it any more.
func (k *Kernel) receive(socket zmq4.Socket) {
	for {
		m, err := socket.Recv()
		if err != nil {
			k.kill()
			return
		}
		if m, ok := k.session.parseMessage(m.Frames); ok {
			select {
			case k.messages <- m:
			case <-k.ended:
			}
		}
	}
}

// Execute runs code as a cell, which cannot read input. If the cell fails, its error is in the result.
//
// If ctx ends, Execute interrupts the cell and returns ctx's error. If the kernel does not answer
// within a few seconds, Execute kills it. Execute also returns an error if the kernel exits or the
// outputs exceed 16 MiB. The result then contains the outputs so far.
func (k *Kernel) Execute(ctx context.Context, code string) (Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	id := rand.Text()
	go func() { // sending waits for a kernel that has been stopped
		err := k.session.sendMessage(k.shell, id, "execute_request", map[string]any{
			"code": code, "silent": false, "store_history": true, "user_expressions": struct{}{}, "allow_stdin": false, "stop_on_error": false,
		})
		if err != nil { // the connection is broken
			k.kill()
		}
	}()
	var shown outputCollector
	canceled, interrupt, interrupts := ctx.Done(), (<-chan time.Time)(nil), 0
	for replied, idle := false, false; !replied || !idle; {
		select {
		case m := <-k.messages:
			if m.parent != id {
				continue
			}
			replied = replied || m.kind == "execute_reply"
			idle = idle || m.kind == "status" && bytes.Contains(m.content, []byte(`"idle"`))
			if err := shown.addMessage(m); err != nil {
				fail(err)
			}
		case <-canceled:
			canceled, interrupt = nil, time.After(0)
		case <-interrupt:
			if interrupts++; interrupts > maxInterrupts {
				k.kill()
			}
			_ = k.cmd.Process.Signal(syscall.SIGINT) // fails only if the kernel has ended
			interrupt = time.After(interruptPause)
		case <-k.ended:
			if err := context.Cause(ctx); err != nil {
				return shown.result(), err
			}
			return shown.result(), k.endedError()
		}
	}
	return shown.result(), context.Cause(ctx)
}

// Close ends the kernel and the other processes of its group, and removes its connection file.
func (k *Kernel) Close() error {
	_ = k.cmd.Process.Signal(syscall.SIGTERM) // fails only if the kernel has ended
	select {
	case <-k.ended:
	case <-time.After(graceTime):
	}
	k.kill()
	<-k.ended
	k.receivers.Wait()
	_, _ = k.shell.Close(), k.iopub.Close() // the connections have ended with the kernel
	return os.RemoveAll(k.folder)
}

// kill ends the kernel's process group at once.
func (k *Kernel) kill() { _ = syscall.Kill(-k.cmd.Process.Pid, syscall.SIGKILL) }

func (k *Kernel) endedError() error {
	how := k.cmd.ProcessState.String()
	if stderr, err := os.Open(filepath.Join(k.folder, "stderr")); err == nil {
		defer stderr.Close()
		text, _ := io.ReadAll(io.LimitReader(stderr, 64<<10))
		if cause := regexp.MustCompile(`(?m)^(panic|fatal error|lockstep-kernel): .*`).Find(text); cause != nil {
			how += ": " + string(cause)
		}
	}
	return fmt.Errorf("the kernel ended (%s) and its variables are lost: start another", how)
}
