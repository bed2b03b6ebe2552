package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// decimalValue is a flag value that accepts whole numbers only in decimal digits. Otherwise, 010
// would mean 8, as in C.
type decimalValue struct{ pflag.Value }

// wholeNumbersPattern matches whole numbers, separated by commas, as IntSlice accepts them.
var wholeNumbersPattern = regexp.MustCompile(`^\[?\s*[-+]?(0|[1-9][0-9]*)\s*(,\s*[-+]?(0|[1-9][0-9]*)\s*)*\]?$`)

func (v decimalValue) Set(text string) error {
	if !wholeNumbersPattern.MatchString(text) {
		return fmt.Errorf("%q: want whole numbers in decimal digits, such as 16", text)
	}
	return v.Value.Set(text)
}

// requireDecimalFlags wraps all integer flags of c and its subcommands in a decimalValue.
func requireDecimalFlags(c *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type(); strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint") {
				f.Value = decimalValue{f.Value}
			}
		})
	}
	for _, sub := range c.Commands() {
		requireDecimalFlags(sub)
	}
}
