package logline

import "testing"

// TestLabels checks the text before messages, and text that only resembles a
// label.
func TestLabels(t *testing.T) {
	for _, c := range []struct {
		line, message, stamp string
		rank                 int
	}{
		{"0: hello", "hello", "", 0},
		{" 12: hello", "hello", "", 12},
		{"12:30:01 hello", "12:30:01 hello", "", -1},
		{"[1,7]<stdout>:hello", "hello", "", 7},
		{"[3]<stderr>:hello", "hello", "", 3},
		{"[rank4]:hello", "hello", "", 4},
		{"[INFO] EPOCH: 1/2", "[INFO] EPOCH: 1/2", "", -1},
		{"[12] hello", "[12] hello", "", -1},
		{"2021-11-12 00:32:26,118 - root - INFO -   hello - you", "hello - you", "2021-11-12 00:32:26,118", -1},
		{"021-11-12 00:32:26,118 - root - INFO - hello", "hello", "021-11-12 00:32:26,118", -1},
		{"1: 2018-10-07 20:36:09,348 INFO hello", "hello", "2018-10-07 20:36:09,348", 1},
		{"2019-05-06 10:00:03.104433: I tensorflow", "I tensorflow", "2019-05-06 10:00:03.104", -1},
		{"2023-05-04 10:00:00.123456: Epoch 5 ", "Epoch 5 ", "2023-05-04 10:00:00.123", -1},
		{"05/04/2024 10:00:00 - INFO - __main__ -   hello - you", "hello - you", "", -1},
		{"[2024-05-04 10:00:30] iteration 5", "iteration 5", "2024-05-04 10:00:30,000", -1},
		{" [2024-05-04 10:00:30.123456] iteration 5", "iteration 5", "2024-05-04 10:00:30,123", -1},
		{"3: [2023-05-04 10:00:00,123] [INFO] [timer.py:199:stop] [Rank 0] hello", "hello", "2023-05-04 10:00:00,123", 3},
		{"[2023-05-04 10:00:00,123] [INFO] hello", "[INFO] hello", "2023-05-04 10:00:00,123", -1},
		{"[INFO|trainer.py:2134] 2024-05-04 10:00:00,123 >>   hello", "hello", "2024-05-04 10:00:00,123", -1},
		{"[2024-05-04 is a Saturday] hello", "[2024-05-04 is a Saturday] hello", "", -1},
		{"2021-11-12", "2021-11-12", "", -1},
		{"1:", "1:", "", -1},
	} {
		log := &Log{Rank: -1}
		if got := log.StripPrefix([]byte(c.line)); string(got) != c.message || log.Rank != c.rank || string(log.Stamp) != c.stamp {
			t.Errorf("%q: message %q, rank %d, stamp %q", c.line, got, log.Rank, log.Stamp)
		}
	}
}
