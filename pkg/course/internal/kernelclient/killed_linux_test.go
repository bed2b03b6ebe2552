package kernelclient

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// If the process of the client is killed, no kernel stays behind in an endless loop.
func TestClientIsKilled(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	client := exec.Command(os.Args[0])
	client.Stderr = os.Stderr
	client.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "KERNELCLIENT_TEST_KERNEL="+builtKernel(t),
		fmt.Sprintf("KERNELCLIENT_TEST_CODE=import \"os\"\nf := os.OpenFile(%q, os.O_WRONLY, 0)\nfor {}", pipe))
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	kernel, err := os.Open(pipe) // returns when the cell has opened the pipe
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	if err := client.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = client.Wait()                             // it was killed
	if _, err := io.ReadAll(kernel); err != nil { // returns when the kernel has ended
		t.Error(err)
	}
}
