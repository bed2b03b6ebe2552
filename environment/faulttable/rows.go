package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Attributes that a test sets.
const (
	attrFault   = "fault"   // what the test breaks
	attrOutcome = "outcome" // what it saw then
)

const (
	verdictGood = "good"
	verdictBad  = "BAD"
	verdictNone = "not run"
)

// row is one fault and what happened.
type row struct {
	test    string // lockstep/pkg/launch.TestHangup/detached
	fault   string
	outcome string  // for a test that was skipped: the reason
	action  string  // pass, fail or skip; empty if the test never ended
	seconds float64 // of the whole test
}

func (r row) verdict() string {
	switch r.action {
	case "pass":
		return verdictGood
	case "skip":
		return verdictNone
	default:
		return verdictBad
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Key, Value, Output string
	Elapsed                                   float64
}

// readRows reads the output of go test -json and returns a row for each test
// with the attribute "fault", in the order of their ends. A test of names that
// ended without the attribute, because it was skipped or failed early, gets a row
// under its own name: no fault disappears from the table.
func readRows(r *bufio.Reader, names []string) ([]row, error) {
	tests := map[string]*row{}
	said := map[string]string{} // the last line that a test printed
	reached := map[string]bool{}
	var rows []row
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			var ev event
			if json.Unmarshal([]byte(line), &ev) == nil && ev.Test != "" {
				rows = addEvent(rows, tests, said, reached, names, ev)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read go test: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) { // a crash leaves tests without an end
		if t := tests[name]; t.fault != "" && t.action == "" {
			t.outcome = "the test did not end: " + t.outcome
			rows = append(rows, *t)
			reached[topLevel(t.test)] = true
		}
	}
	for _, name := range names {
		if !reached[name] {
			rows = append(rows, row{test: name, fault: name, outcome: "the test did not run; does it build?"})
		}
	}
	return rows, nil
}

func addEvent(rows []row, tests map[string]*row, said map[string]string, reached map[string]bool, names []string, ev event) []row {
	t := tests[ev.Test]
	if t == nil {
		t = &row{test: ev.Package + "." + ev.Test}
		tests[ev.Test] = t
	}
	switch ev.Action {
	case "attr":
		switch ev.Key {
		case attrFault:
			t.fault = ev.Value
		case attrOutcome:
			t.outcome = ev.Value
		}
	case "output":
		if text := strings.TrimSpace(ev.Output); text != "" && !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- ") {
			said[ev.Test] = text
		}
	case "pass", "fail", "skip":
		t.action, t.seconds = ev.Action, ev.Elapsed
		if t.fault == "" && slices.Contains(names, ev.Test) && (ev.Action != "pass" && !reached[ev.Test]) {
			t.fault = ev.Test
		}
		if t.fault == "" {
			break
		}
		if ev.Action != "pass" {
			t.outcome = said[ev.Test]
		}
		reached[topLevel(ev.Test)] = true
		rows = append(rows, *t)
	}
	return rows
}

// topLevel returns the name of the test function without package and subtests.
func topLevel(test string) string {
	if at := strings.Index(test, ".Test"); at >= 0 {
		test = test[at+1:]
	}
	name, _, _ := strings.Cut(test, "/")
	return name
}
