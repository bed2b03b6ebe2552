package textlog

import "testing"

// TestSystemMessages checks which lines are those of launchers and schedulers, and not
// lines of a program of unknown form.
func TestSystemMessages(t *testing.T) {
	for _, test := range []struct {
		line   string
		system bool
	}{
		{"Rank 3 of 8", true},
		{"[rank 3/8] starting", true},
		{"World size: 8", true},
		{"[rank 0/2] Epoch: [1] train 0.90 valid 0.95 (12.5 sec)", false},
		{"[2024-05-01 10:00:13][rank 0/2] Epoch: [1] train 0.90 valid 0.95 (12.5 sec)", false},
		{"Rank 1 of 2: epoch 1, loss 0.5", false},
		{"rank 1 of 2nd", false},
		{"epoch 1, loss 0.5", false},
	} {
		messages := Messages([]byte(test.line + "\n"))
		if len(messages) != 1 || messages[0].System != test.system {
			t.Errorf("%q: got %+v, want System %v", test.line, messages, test.system)
		}
	}
}
