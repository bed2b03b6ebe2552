package logread

import (
	"math"
	"strings"
	"testing"
)

// TestDLLoggerThroughput checks that the throughput of an epoch includes the
// time for loading data, in whatever order the line has its values.
func TestDLLoggerThroughput(t *testing.T) {
	line := func(epoch, data string) string {
		return `DLLL {"timestamp": "1587451057.9", "elapsedtime": "91.6", "type": "LOG", "step": [` + epoch + `], "data": {"train.loss": 2.5, ` + data + "}}\n"
	}
	for name, c := range map[string]struct {
		data string
		want float64
		says string
	}{
		"total first": {`"train.total_ips": 950.5, "train.compute_ips": 1200.25`, 950.5, ""},
		"total last":  {`"train.compute_ips": 1200.25, "train.total_ips": 950.5`, 950.5, ""},
		"compute":     {`"train.compute_ips": 1200.25`, 1200.25, "train.compute_ips, which does not include loading data"},
		"plain":       {`"train_throughput": 812.5`, 812.5, ""},
		"validation":  {`"val.total_ips": 3000.0`, math.NaN(), ""},
	} {
		found, report := readReport(t, "log_8gpu.json", line("0", c.data)+line("1", c.data))
		if len(found) != 1 || len(found[0].Epochs) != 2 {
			t.Fatalf("%s: %d runs\n%s", name, len(found), report)
		}
		for _, e := range found[0].Epochs {
			if got := e.SamplesPerSecond; got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
				t.Errorf("%s: got %g samples/s, want %g", name, got, c.want)
			}
		}
		if says := report.String(); strings.Count(says, "compute_ips") != min(len(c.says), 1) || !strings.Contains(says, c.says) {
			t.Errorf("%s: got %s, want %q", name, says, c.says)
		}
	}
}
