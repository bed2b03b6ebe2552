// Command testrun runs all checks of the project in phases, and prints a summary. environment/test
// starts it after installing the packages that the phases need.
// environment/README.md describes each phase.
//
//	testrun [-strict] [-all] [-json] [-only PHASE,...] [-list]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	strict, all, json, list bool
	only                    []string
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var only string
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.BoolVar(&o.strict, "strict", false, "every phase and every test; a skip that environment/skips.txt does not list is a failure")
	fs.BoolVar(&o.all, "all", false, "also the slow tests of the NEON assembly; implies -strict")
	fs.BoolVar(&o.json, "json", false, "a summary as JSON on stdout")
	fs.BoolVar(&o.list, "list", false, "print the phases and stop")
	fs.StringVar(&only, "only", "", "only these phases, comma-separated")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	o.strict = o.strict || o.all
	o.only = strings.FieldsFunc(only, func(r rune) bool { return r == ',' || r == ' ' })
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "test: %v\n", err)
		return exitUsage
	}
	human := stdout
	if o.json {
		human = stderr
	}
	skips, err := readSkips("environment/skips.txt")
	if err != nil {
		fmt.Fprintf(stderr, "test: %v\n", err)
		return exitUsage
	}
	chosen, left, err := o.selectPhases(allPhases())
	if err != nil {
		fmt.Fprintf(stderr, "test: %v\n", err)
		return exitUsage
	}
	if o.list {
		for _, p := range chosen {
			fmt.Fprintf(human, "%-9s %s\n", p.name, p.what)
		}
		return 0
	}
	r := &runner{options: o, out: human, skips: skips, begin: time.Now()}
	r.runPhases(ctx, chosen)
	sum := r.summarize()
	sum.print(human, left)
	if o.json {
		if err := sum.writeJSON(stdout); err != nil {
			fmt.Fprintf(stderr, "test: write summary: %v\n", err)
			return exitFailed
		}
	}
	if sum.Failed > 0 {
		return exitFailed
	}
	return 0
}

// selectPhases returns the phases to run, in the order of all, and those left out because they need --strict.
// --only selects phases by name; an unknown name is an error.
func (o options) selectPhases(all []phase) (chosen, left []phase, err error) {
	var known []string
	for _, p := range all {
		known = append(known, p.name)
		switch {
		case slices.Contains(o.only, p.name), len(o.only) == 0 && (o.strict || !p.strict):
			chosen = append(chosen, p)
		case len(o.only) == 0:
			left = append(left, p)
		}
	}
	for _, n := range o.only {
		if !slices.Contains(known, n) {
			return nil, nil, fmt.Errorf("unknown phase %q: use %s", n, strings.Join(known, ", "))
		}
	}
	return chosen, left, nil
}
