package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts run this test binary as the lockstep command, worker processes included.
func TestMain(m *testing.M) {
	if os.Getenv("XDG_STATE_HOME") == "" {
		_ = os.Setenv("XDG_STATE_HOME", "/dev/null") // launch cannot write this user's token
	}
	testscript.Main(m, map[string]func(){"lockstep": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("LOCKSTEP_LOGS", e.WorkDir+"/logs")
			e.Setenv("LOCKSTEP_LOCKS", e.WorkDir+"/locks")
			e.Setenv("XDG_STATE_HOME", e.WorkDir+"/state")
			checkout, err := filepath.Abs("../../..")
			if err != nil {
				return err
			}
			e.Setenv("CHECKOUT", checkout)
			return os.Mkdir(e.WorkDir+"/logs", 0o755)
		},
	})
}
