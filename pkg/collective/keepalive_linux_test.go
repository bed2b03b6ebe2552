package collective

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKeepAlive checks, from the options that the kernel has recorded, that it gives up a
// connection to a lost host in less than the 10 s that environment/adr/008 requires.
func TestKeepAlive(t *testing.T) {
	groups, err := ring("tcp")(2, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := groups[0].(*Ring)
	for _, c := range []net.Conn{r.in, r.out.Conn} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		option := func(level, name int) (value int) {
			if cerr := raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, name) }); errors.Join(cerr, err) != nil {
				t.Fatal(cerr, err)
			}
			return value
		}
		idle, count := option(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE), option(unix.IPPROTO_TCP, unix.TCP_KEEPCNT)
		if d := idle + count*option(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL); option(unix.SOL_SOCKET, unix.SO_KEEPALIVE) == 0 || d < 5 || d > 9 {
			t.Errorf("the kernel gives up a lost host after %d s, want 5 to 9 s with keep-alive on", d)
		}
	}
	if err := closeAll(groups); err != nil {
		t.Fatal(err)
	}
}
