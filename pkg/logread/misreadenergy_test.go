package logread

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// powerRow matches a row of the sample tables/gpu_2gpus.csv: the time and the power.
var powerRow = regexp.MustCompile(`(?m)^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}), .* ([0-9.]+) W,`)

// isEnergy reports whether a row is the energy of the powers that were read of its run: for each
// GPU, the trapezoids between the times that the content has beside the powers, in the order of
// the rows. Rows with a time before that of an earlier row are left out.
func (c misreadChecker) isEnergy(r Row, same []Row) bool {
	if r.Name != "energy_joules" {
		return false
	}
	times := map[float64]float64{} // in s, by power: the decimals of samples are unique
	for _, f := range c.filesOf(r.Run) {
		for _, m := range powerRow.FindAllSubmatch(f.content, -1) {
			at, err := time.Parse("2006/01/02 15:04:05", string(m[1]))
			watts, err2 := strconv.ParseFloat(string(m[2]), 64)
			if err == nil && err2 == nil {
				times[watts] = float64(at.UnixMilli()) / 1e3
			}
		}
	}
	return math.Abs(integratePower(times, same)-r.Value) <= 1e-9*r.Value
}

// integratePower returns the energy of the powers among the rows of a run in J. It returns NaN if
// the time of one of them is unknown.
func integratePower(times map[float64]float64, same []Row) float64 {
	joules := 0.0
	latest := map[int]Row{} // of each GPU
	for _, o := range same {
		if o.Name != "power.draw [W]" {
			continue
		}
		at, known := times[o.Value]
		if !known {
			return math.NaN()
		}
		if before, ok := latest[o.Rank]; ok {
			seconds := at - times[before.Value]
			if seconds < 0 {
				continue
			}
			joules += seconds * (before.Value + o.Value) / 2
		}
		latest[o.Rank] = o
	}
	return joules
}

// TestEnergyOfLateRows: if the time of a GPU goes back, as in a file that two programs wrote at
// the same time, the energy of no moment is counted twice, and a problem counts the rows that are
// left out.
func TestEnergyOfLateRows(t *testing.T) {
	const header = "timestamp, index, power.draw [W]\n"
	row := func(second int, gpu, watts string) string {
		return "2023/11/14 22:13:" + strconv.Itoa(second) + ".000, " + gpu + ", " + watts + " W\n"
	}
	a, b, c := row(20, "0", "100.00"), row(22, "0", "200.00"), row(24, "0", "100.00")
	other := row(20, "1", "50.00") + row(22, "1", "50.00") // 100 J
	for name, test := range map[string]struct {
		text   string
		joules float64 // by hand: 300 J from a to b, 300 J from b to c
		says   string
	}{
		"in order":           {a + b + c, 600, ""},
		"the same row twice": {a + a + b + b + c + c, 600, ""},
		"interleaved":        {a + b + a + b + c, 600, "line 4: the time of GPU 0 goes back: the power of 1 row with"},
		"twice":              {a + b + c + header + a + b + c, 600, "line 6: the time of GPU 0 goes back: the power of 2 rows with"},
		"of two GPUs":        {a + b + other + c, 700, ""},
		"of the second GPU":  {a + b + c + row(24, "1", "50.00") + other, 600, "line 6: the time of GPU 1 goes back: the power of 2 rows with"},
	} {
		run, report := readReport(t, "gpu_2gpus.csv", header+test.text)
		if got := run[0].Info.EnergyJoules; got != test.joules {
			t.Errorf("%s: got %g J, want %g J", name, got, test.joules)
		}
		if text := report.String(); !strings.Contains(text, test.says) || strings.Contains(text, "goes back") != (test.says != "") {
			t.Errorf("%s: got\n%s, want %q", name, text, test.says)
		}
	}
}

// TestEnergyWithoutIndex: if no column distinguishes GPUs, a note states that the power is taken
// as that of one GPU.
func TestEnergyWithoutIndex(t *testing.T) {
	const note = "energy: the rows are those of one GPU, because no column (index, uuid, pci.bus_id) distinguishes several"
	for header, want := range map[string]bool{"": true, "index": false, "uuid": false} {
		text := "timestamp, power.draw [W]\n2023/11/14 22:13:20.000, 100.00 W\n2023/11/14 22:13:22.000, 200.00 W\n"
		if header != "" {
			text = "timestamp, " + header + ", power.draw [W]\n2023/11/14 22:13:20.000, 0, 100.00 W\n2023/11/14 22:13:22.000, 0, 200.00 W\n"
		}
		run, report := readReport(t, "gpu_2gpus.csv", text)
		if got := strings.Contains(report.String(), note); got != want || run[0].Info.EnergyJoules != 300 {
			t.Errorf("column %q: got the note: %t, and %g J, want %t and 300 J\n%s", header, got, run[0].Info.EnergyJoules, want, report)
		}
	}
}
