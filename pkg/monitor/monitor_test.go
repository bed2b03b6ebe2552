package monitor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/clib/nvml"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSampler: the simulated GPU is busy for 90 % of the time and draws 300 W;
// its energy counter advances by the amount that the test sets.
func TestSampler(t *testing.T) {
	lib := clibtest.New(clibtest.Options{}).NVML()
	counter := 1000.0
	lib.Energy = func(nvml.Device) (float64, error) {
		counter += 42
		return counter - 42, nil
	}
	var text strings.Builder
	s, err := Start(lib, []string{"0000:01:00.0"}, time.Hour, &text)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if got != (Summary{Samples: 2, Utilization: 90, PowerWatts: 300, EnergyJoules: 42}) {
		t.Errorf("summary is %+v", got)
	}
	if last := s.Last(); last != (GPUSample{Percent: 90, Watts: 300}) {
		t.Errorf("last sample is %+v", last)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 3 || lines[0] != strings.Join(Columns(), ",") || !strings.HasPrefix(lines[1], "0.00") || !strings.Contains(lines[1], ",0,90,40,300.0,") {
		t.Errorf("lines are %q", lines)
	}
}

// TestWithoutSensors: a value that the GPU does not measure is an empty cell and no error.
func TestWithoutSensors(t *testing.T) {
	lib := clibtest.New(clibtest.Options{}).NVML()
	none := errors.New("not supported")
	lib.Energy = func(nvml.Device) (float64, error) { return 0, none }
	lib.Utilization = func(nvml.Device) (nvml.Utilization, error) { return nvml.Utilization{}, none }
	s, err := Start(lib, []string{"0000:01:00.0"}, time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	got, err := s.Stop()
	if err != nil || got.Utilization != 0 || got.PowerWatts != 300 || !(got.EnergyJoules > 0) || got.Samples < 2 {
		t.Errorf("summary is %+v, %v", got, err)
	}
	if _, err := Start(nil, nil, time.Second, nil); err == nil {
		t.Error("no library is taken")
	}
	if _, err := Start(lib, []string{"0000:77:00.0"}, time.Second, nil); err == nil {
		t.Error("a GPU that is not there is taken")
	}
	if _, err := Start(lib, nil, 0, nil); err == nil {
		t.Error("an interval of 0 is taken")
	}
}
