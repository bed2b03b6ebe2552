package train

import (
	"strings"
	"testing"
)

// TestCheckEnvironment: an invalid value of a variable is an error that names the variable.
func TestCheckEnvironment(t *testing.T) {
	t.Parallel()
	for entry, good := range map[string]bool{
		"LOCKSTEP_SEED=7": true, "LOCKSTEP_SEED=x": false, "LOCKSTEP_SEED=-4": false, "LOCKSTEP_SEED=99999999999999999999": false, "LOCKSTEP_SEED=1.5": false,
		"LOCKSTEP_USAGE=off": true, "LOCKSTEP_USAGE=maybe": false, "LOCKSTEP_CPU=go": true, "LOCKSTEP_CPU=avx1024": false,
		"LOCKSTEP_COLLECTIVE=tcp": true, "LOCKSTEP_COLLECTIVE=pigeon": false, "LOCKSTEP_ALGORITHM=ring": true, "LOCKSTEP_ALGORITHM=star": false,
		"LOCKSTEP_TLS=1": true, "LOCKSTEP_TLS=maybe": false, "LOCKSTEP_TLS=": true,
	} {
		name, value, _ := strings.Cut(entry, "=")
		err := CheckEnvironment(func(n string) string {
			if n == name {
				return value
			}
			return ""
		})
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", entry, err)
		}
	}
}
