package binary

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/notebook"
)

func TestFind(t *testing.T) {
	ctx := context.Background()
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "lockstep")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct{ name, path, err string }{
		{"same build", script(`[ "$*" = "version --json" ] && echo '{"build_id":"dev"}'`), ""}, // a test's own is dev
		{"other build", script(`echo '{"build_id":"0123"}'`), `got build "0123", want build "dev"`},
		{"other program", script(`echo hello`), "is it the lockstep command?"},
		{"failing program", script(`exit 1`), "is it the lockstep command?"},
		{"absent", filepath.Join(t.TempDir(), "lockstep"), "set LOCKSTEP_BIN to the lockstep command"},
		{"unset", "", "set LOCKSTEP_BIN"}, // there is no lockstep beside a test binary
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("LOCKSTEP_BIN", tt.path)
			got, err := Find(ctx)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got error %v, want %q", err, tt.err)
				}
			} else if err != nil || got != tt.path {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

// TestFindCanceled: if the context is canceled before the call or while
// the command runs, the error is the cancellation.
func TestFindCanceled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockstep")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCKSTEP_BIN", path)
	for _, after := range []time.Duration{0, 100 * time.Millisecond} {
		ctx, cancel := context.WithCancel(context.Background())
		if after == 0 {
			cancel()
		}
		time.AfterFunc(after, cancel)
		_, err := Find(ctx)
		if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "build id") || strings.Contains(err.Error(), path) {
			t.Errorf("canceled after %v: got %v, want a cancellation that blames nobody", after, err)
		}
	}
}

// TestFindAfterAnUpdate checks that a kernel that runs while Lockstep is installed again says what to do.
func TestFindAfterAnUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockstep")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '{\"build_id\":\"0123\"}'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCKSTEP_BIN", path)
	notebook.SetHook(notebook.Hook{Context: t.Context, Display: func(any, string, bool) error { return nil }})
	t.Cleanup(func() { notebook.SetHook(notebook.Hook{}) })
	if _, err := Find(t.Context()); err == nil || !strings.Contains(err.Error(), "restart the kernel") {
		t.Errorf("got the error %v", err)
	}
}
