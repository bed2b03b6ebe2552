//go:build notebook

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"reflect"
	"sync"
	"syscall"

	"github.com/cosmos72/gomacro/imports"
	"github.com/go-zeromq/zmq4"
)

// A promptReader is the standard input of the cells: when its input is used up, it asks the notebook's user
// for another line.
//
// A file cannot detect that a program is about to read from it. Therefore functions that read standard input
// are replaced in cells by functions that read from the promptReader. os.Stdin itself cannot be read, so
// that other code gets an error and does not wait forever.
type promptReader struct {
	k       *kernelState
	replies chan string
	mu      sync.Mutex // held while a line is requested
	rest    []byte     // unread bytes of the last line
}

// stdinName is os.Stdin's file name, in the error of a direct read.
const stdinName = "os.Stdin of a notebook (use fmt.Scan, bufio.NewReader(os.Stdin) or bufio.NewScanner(os.Stdin))"

// replaceStdin replaces the functions that read standard input.
func (k *kernelState) replaceStdin() error {
	fd, err := syscall.Open(os.DevNull, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open standard input: %w", err)
	}
	os.Stdin = os.NewFile(uintptr(fd), stdinName)
	k.stdin = &promptReader{k: k, replies: make(chan string, 1)}
	in := bufio.NewReader(k.stdin) // lets a scan look ahead without losing a character
	from := func(r io.Reader) io.Reader {
		if f, ok := r.(*os.File); ok && f == os.Stdin {
			return in
		}
		return r
	}
	for pkg, functions := range map[string]map[string]any{
		"fmt": {
			"Scan":    func(a ...any) (int, error) { return fmt.Fscan(in, a...) },
			"Scanln":  func(a ...any) (int, error) { return fmt.Fscanln(in, a...) },
			"Scanf":   func(format string, a ...any) (int, error) { return fmt.Fscanf(in, format, a...) },
			"Fscan":   func(r io.Reader, a ...any) (int, error) { return fmt.Fscan(from(r), a...) },
			"Fscanln": func(r io.Reader, a ...any) (int, error) { return fmt.Fscanln(from(r), a...) },
			"Fscanf":  func(r io.Reader, format string, a ...any) (int, error) { return fmt.Fscanf(from(r), format, a...) },
		},
		"bufio": {
			"NewReader":     func(r io.Reader) *bufio.Reader { return bufio.NewReader(from(r)) },
			"NewReaderSize": func(r io.Reader, size int) *bufio.Reader { return bufio.NewReaderSize(from(r), size) },
			"NewScanner":    func(r io.Reader) *bufio.Scanner { return bufio.NewScanner(from(r)) },
		},
	} {
		for name, f := range functions {
			imports.Packages[pkg].Binds[name] = reflect.ValueOf(f)
		}
	}
	return nil
}

// Read returns the rest of the last line, or asks for a new one.
func (a *promptReader) Read(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.rest) == 0 {
		line, err := a.requestLine()
		if err != nil {
			// Programs often ignore the error of a scan, so print it.
			fmt.Fprintln(a.k.stderr.File(), err)
			return 0, err
		}
		a.rest = []byte(line + "\n")
	}
	n := copy(b, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// requestLine asks the front-end for a line, and waits for it or an interrupt.
func (a *promptReader) requestLine() (string, error) {
	receipt := a.k.receipt.Load()
	if receipt == nil {
		return "", errors.New("read input: no cell has run yet")
	}
	content, _ := receipt.Msg.Content.(map[string]interface{})
	if allowed, _ := content["allow_stdin"].(bool); !allowed {
		return "", errors.New("read input: the front-end does not allow input; set the value in the cell")
	}
	a.k.stdout.Flush() // so that the question appears before the input field
	a.k.stderr.Flush()
	select {
	case <-a.replies: // discard the answer to an abandoned request
	default:
	}
	msg, err := NewMsg("input_request", receipt.Msg)
	if err != nil {
		return "", fmt.Errorf("read input: %w", err)
	}
	msg.Content = MIMEMap{"prompt": "", "password": false}
	err = receipt.Sockets.StdinSocket.RunWithSocket(func(s zmq4.Socket) error { return receipt.SendResponse(s, msg) })
	if err != nil {
		return "", fmt.Errorf("read input: send request to front-end: %w", err)
	}
	select {
	case line := <-a.replies:
		return line, nil
	case <-a.k.session.Context().Done():
		return "", fmt.Errorf("read input: %w", errInterrupted)
	}
}

// listen receives the front-end's answers, which gophernotes' poll of the socket would not deliver before
// the cell has ended.
func (a *promptReader) listen(sockets SocketGroup) {
	for {
		m, err := sockets.StdinSocket.Socket.Recv()
		if err != nil {
			return // the kernel ends
		}
		msg, _, err := WireMsgToComposedMsg(m.Frames, sockets.Key)
		if err != nil {
			log.Printf("read input: read reply of front-end: %v", err)
			continue
		}
		content, _ := msg.Content.(map[string]interface{})
		if value, ok := content["value"].(string); ok && msg.Header.MsgType == "input_reply" {
			select {
			case a.replies <- value:
			default: // nobody asked
			}
		}
	}
}
