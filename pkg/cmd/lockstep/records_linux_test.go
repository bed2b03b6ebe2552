package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/runs"
	"lockstep/pkg/runs/flight"
)

// TestRecordsOfCollectives stops or kills a rank, and checks that the error of the other names
// its process, its host and why there is no stack, and that lockstep read names the operation that
// the rank never entered.
func TestRecordsOfCollectives(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		signal syscall.Signal
		reason string // why there is no stack
	}{{"SIGSTOP", syscall.SIGSTOP, "no stack: its process is stopped (state T"}, {"SIGKILL", syscall.SIGKILL, "no stack: its process has ended"}} {
		for _, transport := range []string{"shm", "tcp"} {
			t.Run(tt.name+" "+transport, func(t *testing.T) {
				t.Setenv("LOCKSTEP_COLLECTIVE", transport)
				p := newPlace(t)
				c, out := p.begin("launch", "--config", p.config, "--workers", "2", "--oversubscribe", "--set", "epochs=100000", "--timeout-collective", "5s")
				out.await(t, "epoch 2/")
				victim := 0
				for _, pid := range p.processes() {
					if variable(pid, "RANK") == "1" {
						victim = pid
					}
				}
				if victim == 0 {
					t.Fatalf("no rank 1 among %v", p.processes())
				}
				if err := syscall.Kill(victim, tt.signal); err != nil {
					t.Fatal(err)
				}
				if err := c.Wait(); err == nil {
					t.Error("the run ended without an error, but also without rank 1")
				}
				if want := fmt.Sprintf("; rank 1 is process %d on %s", victim, host); !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%.2000s", want, out)
				}
				if !strings.Contains(out.String(), "; "+tt.reason) {
					t.Errorf("no %q in\n%.2000s", tt.reason, out)
				}
				read := &said{}
				r := p.command(nil, "read", p.run(2, 1))
				r.Stdout, r.Stderr = read, read
				if err := r.Run(); err != nil {
					t.Errorf("%v\n%s", err, read)
				}
				want := regexp.MustCompile(fmt.Sprintf(`rank 1 \(process %d on %s\) (never entered|entered) [a-z-]+ \d+.* %s.*; rank 0 waited .*s\n`, victim, regexp.QuoteMeta(host), regexp.QuoteMeta(tt.reason)))
				if !want.MatchString(read.String()) {
					t.Errorf("no %q in\n%s", want, read)
				}
			})
		}
	}
}

// TestRecordsAskedFor sends SIGUSR2 to the launcher of a run, which goes on, and checks that all
// ranks write their records, and that a resumed run removes them.
func TestRecordsAskedFor(t *testing.T) {
	p := newPlace(t)
	c, out := p.begin("launch", "--config", p.config, "--workers", "2", "--oversubscribe", "--set", "epochs=100000")
	out.await(t, "epoch 2/")
	if err := c.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	dir := p.run(2, 1)
	for rank := range 2 {
		var r flight.Record
		err := os.ErrNotExist
		for n := 0; err != nil && n < 3000; n++ {
			time.Sleep(10 * time.Millisecond)
			r, err = flight.ReadFile(dir, flight.FileName(rank))
		}
		if err != nil {
			t.Fatal(err)
		}
		buckets := 0
		for _, call := range r.Calls {
			if call.Kind == "all-reduce" && call.Step > 0 && call.Bucket != nil && call.Elements > 0 && call.Bits == 32 && !call.Begin.IsZero() {
				buckets++
			}
		}
		if r.Rank != rank || r.World != 2 || r.Transport != "shared memory" || r.Error != "" || buckets == 0 || len(r.Calls) == 0 || len(r.Calls) > flight.MaxCalls {
			t.Errorf("rank %d: header %+v, %d calls, %d of them of buckets", rank, r.Header, len(r.Calls), buckets)
		}
	}
	interrupt(t, c)
	endsWith130(t, c, out)
	c, out = p.begin("launch", "--config", p.config, "--workers", "2", "--oversubscribe", "--set", "epochs=100000", "--resume")
	out.await(t, "epoch ")
	if left, err := filepath.Glob(filepath.Join(dir, "collectives-*")); err != nil || len(left) > 0 {
		t.Errorf("%v are left of the earlier part, %v", left, err)
	}
	interrupt(t, c)
	endsWith130(t, c, out)
	if run, err := runs.Read(dir); err != nil || len(run.Problems) > 0 {
		t.Errorf("problems %v, %v", run.Problems, err)
	}
}
