package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// decimalValue is the value of a flag with whole numbers, in decimal digits. Without it, 010 would
// be 8, as in C.
type decimalValue struct{ pflag.Value }

// wholeNumbers matches whole numbers, separated by commas, as IntSlice accepts them.
var wholeNumbers = regexp.MustCompile(`^\[?\s*[-+]?(0|[1-9][0-9]*)\s*(,\s*[-+]?(0|[1-9][0-9]*)\s*)*\]?$`)

// Set parses text, and sets the value of the flag.
func (v decimalValue) Set(text string) error {
	if !wholeNumbers.MatchString(text) {
		return fmt.Errorf("%q: want whole numbers in decimal digits, such as 16", text)
	}
	return v.Value.Set(text)
}

// requireDecimal makes all flags of c and its commands that are whole numbers a decimalValue.
func requireDecimal(c *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type(); strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint") {
				f.Value = decimalValue{f.Value}
			}
		})
	}
	for _, sub := range c.Commands() {
		requireDecimal(sub)
	}
}
