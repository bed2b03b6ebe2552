package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is one line of go test -json (go doc test2json, go help buildjson).
type event struct {
	Action     string
	Package    string
	ImportPath string // set if Action is build-output
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// eventCollector collects the results of one go test. Of a test with subtests, only these are counted.
type eventCollector struct {
	line        func(string)
	tests       map[string]map[string]*testState // by package and test name
	buildOutput map[string]*lineTail             // compiler output, by package
	otherOutput map[string]*lineTail             // output outside of tests, by package

	passed   int
	failures []failure
	skips    []skippedTest
}

type testState struct {
	action string // pass, fail or skip; empty while the test runs
	output lineTail
}

type skippedTest struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Listed bool   `json:"listed"`
}

// isSlow reports whether the test is skipped by -short. By convention, the reason is then "slow".
func (s skippedTest) isSlow() bool {
	first, _, _ := strings.Cut(s.Reason, "; ") // a script's log follows
	return first == "slow"
}

// maxOutputLines limits the output that is kept per test.
const maxOutputLines = 200

func newEventCollector(printLine func(string)) *eventCollector {
	return &eventCollector{
		line:        printLine,
		tests:       map[string]map[string]*testState{},
		buildOutput: map[string]*lineTail{}, otherOutput: map[string]*lineTail{},
	}
}

// addLine processes a line of go test -json. It prints other lines, such as downloads and invalid flags, as they
// are.
func (e *eventCollector) addLine(text string) {
	var ev event
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &ev) != nil {
		e.line(text)
		return
	}
	switch {
	case ev.Action == "build-output":
		// The path may be followed by the package under test: "p [p.test]".
		path, _, _ := strings.Cut(ev.ImportPath, " ")
		addOutput(e.buildOutput, path, ev.Output)
	case ev.Test != "":
		e.addTest(ev)
	case ev.Action == "output":
		addOutput(e.otherOutput, ev.Package, ev.Output)
	case ev.Action == "pass" || ev.Action == "fail" || ev.Action == "skip":
		e.finishPackage(ev)
	}
}

func addOutput(outputs map[string]*lineTail, key, text string) {
	if outputs[key] == nil {
		outputs[key] = &lineTail{limit: maxOutputLines}
	}
	outputs[key].add(strings.TrimRight(text, "\n"))
}

func (e *eventCollector) addTest(ev event) {
	tests := e.tests[ev.Package]
	if tests == nil {
		tests = map[string]*testState{}
		e.tests[ev.Package] = tests
	}
	t := tests[ev.Test]
	if t == nil {
		t = &testState{output: lineTail{limit: maxOutputLines}}
		tests[ev.Test] = t
	}
	switch ev.Action {
	case "output":
		t.output.add(strings.TrimRight(ev.Output, "\n"))
	case "pass", "fail", "skip":
		t.action = ev.Action
	}
}

// finishPackage counts the tests of a package that has ended, and prints its result.
func (e *eventCollector) finishPackage(ev event) {
	tests := e.tests[ev.Package]
	delete(e.tests, ev.Package)
	if ev.Action == "skip" && len(tests) == 0 {
		return // no test files
	}
	names := slices.Sorted(maps.Keys(tests))
	passedBefore, skipsBefore := e.passed, len(e.skips)
	var failures []failure
	for _, name := range names {
		t := tests[name]
		full := ev.Package + "." + name
		switch {
		case t.action == "fail" && !hasSubtest(names, name, func(c string) bool { return tests[c].action == "fail" }):
			failures = append(failures, failure{Name: full, Output: t.output.String()})
		case t.action == "":
			failures = append(failures, failure{Name: full, Output: "did not finish\n" + t.output.String()})
		case t.action == "skip":
			e.skips = append(e.skips, skippedTest{Name: full, Reason: parseSkipReason(t.output.lines)})
		case t.action == "pass" && !hasSubtest(names, name, func(string) bool { return true }):
			e.passed++
		}
	}
	if ev.Action == "fail" && len(failures) == 0 {
		failures = append(failures, failure{Name: ev.Package, Output: e.packageOutput(ev.Package)})
	}
	e.failures = append(e.failures, failures...)
	e.line(fmt.Sprintf("%-4s %-42s %6.1f s  %d passed, %d failed, %d skipped", map[string]string{"pass": "ok", "fail": "FAIL", "skip": "ok"}[ev.Action],
		ev.Package, ev.Elapsed, e.passed-passedBefore, len(failures), len(e.skips)-skipsBefore))
	for _, f := range failures {
		e.line("     FAIL " + f.Name)
		for _, l := range strings.Split(f.Output, "\n") {
			e.line("       " + l)
		}
	}
}

// packageOutput returns what a failed package printed outside of its tests or, if there is nothing, the
// compiler's output for an imported package.
func (e *eventCollector) packageOutput(path string) string {
	var lines []string
	for _, from := range []map[string]*lineTail{e.buildOutput, e.otherOutput} {
		if t := from[path]; t != nil {
			lines = append(lines, t.lines...)
		}
	}
	if len(lines) == 0 { // the build of an imported package failed
		for name, t := range e.buildOutput {
			lines = append(append(lines, "in "+name+":"), t.lines...)
		}
	}
	return strings.Join(lines, "\n")
}

// finishKilledPackages counts the tests of packages without a final event, because go test was killed.
func (e *eventCollector) finishKilledPackages() {
	for _, path := range slices.Sorted(maps.Keys(e.tests)) {
		e.finishPackage(event{Action: "fail", Package: path})
	}
}

// hasSubtest reports whether the test name has a subtest in names that matches accepts.
func hasSubtest(names []string, name string, matches func(string) bool) bool {
	return slices.ContainsFunc(names, func(c string) bool { return strings.HasPrefix(c, name+"/") && matches(c) })
}

// sourcePositionPattern matches what precedes the reason in t.Skip's output.
var sourcePositionPattern = regexp.MustCompile(`^\s*[^\s:]+\.go:\d+: `)

func parseSkipReason(lines []string) string {
	var printed []string
	for _, l := range lines {
		t := strings.TrimSpace(l)
		if t == "" || strings.HasPrefix(t, "=== ") || strings.HasPrefix(t, "--- ") {
			continue
		}
		printed = append(printed, strings.TrimSpace(sourcePositionPattern.ReplaceAllString(l, "")))
	}
	return strings.Join(printed, "; ")
}
