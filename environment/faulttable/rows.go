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

// Names of the attributes (testing.T.Attr) by which a test describes its fault.
const (
	attrFault   = "fault"   // what the test breaks
	attrOutcome = "outcome" // what the test observed
)

const (
	verdictGood = "good"
	verdictBad  = "BAD"
	verdictNone = "not run"
)

// row describes one fault and the outcome of its test.
type row struct {
	test    string // lockstep/pkg/launch.TestHangup/detached
	fault   string
	outcome string  // the reason if the test was skipped
	action  string  // pass, fail or skip; empty if the test never ended
	seconds float64 // duration of the complete test
}

// verdict returns the verdict of the test: verdictGood, verdictBad or verdictNone.
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

// event is one line of the output of go test -json.
type event struct {
	Action, Package, Test, Key, Value, Output string
	Elapsed                                   float64
}

// readRows reads the output of go test -json and returns one row for each test with the
// attribute "fault", in the order in which the tests end. A test in names that ended
// without the attribute, because it was skipped or failed early, gets a row under its own
// name, so that no fault disappears from the table.
func readRows(r *bufio.Reader, names []string) ([]row, error) {
	tests := map[string]*row{}
	lastLine := map[string]string{} // the last line that a test printed
	hasRow := map[string]bool{}
	var rows []row
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			var ev event
			if json.Unmarshal([]byte(line), &ev) == nil && ev.Test != "" {
				rows = addEvent(rows, tests, lastLine, hasRow, names, ev)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read go test: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) { // tests that a crash interrupted
		if t := tests[name]; t.fault != "" && t.action == "" {
			t.outcome = "the test did not end: " + t.outcome
			rows = append(rows, *t)
			hasRow[topLevelName(t.test)] = true
		}
	}
	for _, name := range names {
		if !hasRow[name] {
			rows = append(rows, row{test: name, fault: name, outcome: "the test did not run; does it build?"})
		}
	}
	return rows, nil
}

// addEvent processes one event of go test -json. It returns rows, with a row appended if
// the event ends a test that belongs in the table. tests and lastLine contain the state of
// each test, by name; hasRow contains the test functions that have a row.
func addEvent(rows []row, tests map[string]*row, lastLine map[string]string, hasRow map[string]bool, names []string, ev event) []row {
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
			lastLine[ev.Test] = text
		}
	case "pass", "fail", "skip":
		t.action, t.seconds = ev.Action, ev.Elapsed
		if t.fault == "" && slices.Contains(names, ev.Test) && (ev.Action != "pass" && !hasRow[ev.Test]) {
			t.fault = ev.Test
		}
		if t.fault == "" {
			break
		}
		if ev.Action != "pass" {
			t.outcome = lastLine[ev.Test]
		}
		hasRow[topLevelName(ev.Test)] = true
		rows = append(rows, *t)
	}
	return rows
}

// topLevelName returns the name of the test function, without package and subtests.
func topLevelName(test string) string {
	if at := strings.Index(test, ".Test"); at >= 0 {
		test = test[at+1:]
	}
	name, _, _ := strings.Cut(test, "/")
	return name
}
