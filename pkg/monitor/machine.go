package monitor

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// machineReader reads this machine's memory, network traffic and processor energy. Tests replace /proc and /sys.
type machineReader struct{ proc, sys string }

// usedMemory returns the bytes that are not available to new processes, or NaN.
func (m machineReader) usedMemory() float64 {
	text, err := os.ReadFile(filepath.Join(m.proc, "meminfo"))
	if err != nil {
		return math.NaN()
	}
	total, available := math.NaN(), math.NaN()
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) != 2 || fields[1] != "kB" {
			continue
		}
		kib, err := strconv.ParseFloat(fields[0], 64)
		switch {
		case err != nil:
		case name == "MemTotal":
			total = kib
		case name == "MemAvailable":
			available = kib
		}
	}
	return (total - available) * 1024
}

// trafficBytes contains bytes since the machine was started.
type trafficBytes struct{ received, sent, loopback float64 }

const loopbackInterface = "lo"

// networkTraffic returns the traffic of this process's network namespace. Only physical interfaces
// count, if there are any: the same bytes also pass through bridges and bonds.
func (m machineReader) networkTraffic() (trafficBytes, error) {
	path := filepath.Join(m.proc, "self/net/dev")
	text, err := os.ReadFile(path)
	if err != nil {
		return trafficBytes{}, err
	}
	var physical, all trafficBytes
	found := false
	for line := range strings.Lines(string(text)) {
		name, rest, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		fields := strings.Fields(rest)
		if !ok || len(fields) < 9 { // the two lines of the header
			continue
		}
		received, err := strconv.ParseFloat(fields[0], 64)
		sent, sentErr := strconv.ParseFloat(fields[8], 64)
		if err = errors.Join(err, sentErr); err != nil {
			return trafficBytes{}, fmt.Errorf("%s: interface %s: %w", path, name, err)
		}
		if name == loopbackInterface {
			all.loopback, physical.loopback = received, received
			continue
		}
		all.received, all.sent = all.received+received, all.sent+sent
		if _, err := os.Stat(filepath.Join(m.sys, "class/net", name, "device")); err == nil {
			found = true
			physical.received, physical.sent = physical.received+received, physical.sent+sent
		}
	}
	if found {
		return physical, nil
	}
	return all, nil
}

// energyCounter is the energy counter (RAPL) of an Intel or AMD processor. Linux provides it in
// /sys/class/powercap (Documentation/power/powercap/powercap.rst of the kernel). On most machines,
// only root may read it.
type energyCounter struct {
	path string
	max  float64 // microjoules at which it starts again from 0
	last float64 // microjoules
}

// energyCounters returns all processors' counters with their current values, or nil if there are
// none or they cannot be read.
func (m machineReader) energyCounters() []*energyCounter {
	zones, err := filepath.Glob(filepath.Join(m.sys, "class/powercap/*-rapl:*"))
	if err != nil {
		return nil
	}
	var all []*energyCounter
	for _, zone := range zones {
		name, err := os.ReadFile(filepath.Join(zone, "name"))
		if err != nil || !strings.HasPrefix(string(name), "package-") { // a part of a package, or the whole machine
			continue
		}
		c := &energyCounter{path: filepath.Join(zone, "energy_uj")}
		var lastErr, maxErr error
		c.last, lastErr = readNumber(c.path)
		c.max, maxErr = readNumber(filepath.Join(zone, "max_energy_range_uj"))
		if lastErr != nil || maxErr != nil {
			return nil // the sum over some processors would be too small
		}
		all = append(all, c)
	}
	return all
}

// joulesSinceLastCall returns NaN if the counter cannot be read.
func (c *energyCounter) joulesSinceLastCall() float64 {
	now, err := readNumber(c.path)
	if err != nil {
		return math.NaN()
	}
	used := now - c.last
	if used < 0 {
		used += c.max
	}
	c.last = now
	return used / 1e6
}

func readNumber(path string) (float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
}
