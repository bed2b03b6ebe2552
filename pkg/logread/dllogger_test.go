package logread

import (
	"fmt"
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

// TestDLLoggerRunsInOneFile checks that a second run whose lines a program has appended to the
// log is a run of its own, and that a resumed run goes on with the run before it.
func TestDLLoggerRunsInOneFile(t *testing.T) {
	setting := func(batch string) string {
		return `DLLL {"timestamp": "1587451050.0", "elapsedtime": "1.0", "type": "LOG", "step": "PARAMETER", "data": {"global_batch_size": ` + batch + "}}\n"
	}
	iteration := func(epoch, i, loss string) string {
		return `DLLL {"timestamp": "1587451057.9", "elapsedtime": "20.5", "type": "LOG", "step": [` + epoch + `, ` + i + `], "data": {"loss": ` + loss + "}}\n"
	}
	epoch := func(epoch, loss string) string {
		return `DLLL {"timestamp": "1587451057.9", "elapsedtime": "91.5", "type": "LOG", "step": [` + epoch + `], "data": {"train.loss": ` + loss + ", \"epoch_time\": 5.5}}\n"
	}
	first := setting("64") + iteration("0", "0", "4.5") + iteration("0", "1", "4.25") + epoch("0", "4.0") + iteration("1", "0", "3.5") + iteration("1", "1", "3.25") + epoch("1", "3.0")
	for name, c := range map[string]struct{ more, want string }{
		"another run":   {strings.ReplaceAll(first, "64", "32"), "64: 1=4 2=3 [4.5 4.25 3.5 3.25]; 32: 1=4 2=3 [4.5 4.25 3.5 3.25]"},
		"epochs alone":  {setting("32") + epoch("0", "2.0"), "64: 1=4 2=3 [4.5 4.25 3.5 3.25]; 32: 1=2 []"},
		"a resumed run": {setting("64") + iteration("2", "0", "2.5") + epoch("2", "2.0"), "64: 1=4 2=3 3=2 [4.5 4.25 3.5 3.25 2.5]"},
		"an epoch again": {
			setting("64") + iteration("1", "0", "2.5") + iteration("1", "1", "2.25") + epoch("1", "2.0"), "64: 1=4 2=2 [4.5 4.25 3.5 3.25 2.5 2.25]",
		},
	} {
		found, report := readReport(t, "log_8gpu.json", first+c.more)
		var got []string
		for _, r := range found {
			text := fmt.Sprintf("%d:", r.Info.GlobalBatch)
			for _, e := range r.Epochs {
				text += fmt.Sprintf(" %d=%g", e.Epoch, e.TrainLoss)
			}
			values := []float64{}
			for _, curve := range r.Curves {
				if curve.Name == "loss" {
					values = curve.Values
				}
			}
			got = append(got, fmt.Sprint(text, " ", values))
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: got %q, want %q\n%s", name, text, c.want, report)
		}
	}
}
