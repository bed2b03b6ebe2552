package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/nn"
)

// Inits returns the initializers that a spec may name for a layer's weight (init) and
// bias (bias_init). The default is "pytorch".
func Inits() []string {
	return []string{"pytorch", "glorot_uniform", "kaiming_normal", "kaiming_fan_out", "normal SIGMA", "constant VALUE"}
}

// namedInitSchemes returns the initializers that are specified by a name alone, without a number.
func namedInitSchemes() map[string]nn.Scheme {
	return map[string]nn.Scheme{
		"pytorch":         func(fanIn, _ int) nn.Initializer { return nn.KaimingUniform(fanIn) },
		"glorot_uniform":  nn.GlorotUniform,
		"kaiming_normal":  func(fanIn, _ int) nn.Initializer { return nn.KaimingNormal(fanIn) },
		"kaiming_fan_out": nn.KaimingFanOut,
	}
}

// parseInitScheme parses an initializer in a spec, such as "glorot_uniform" or "normal 0.02". It
// returns nil without an error if text is empty.
func parseInitScheme(text string) (nn.Scheme, error) {
	if text == "" {
		return nil, nil
	}
	if s, ok := namedInitSchemes()[text]; ok {
		return s, nil
	}
	if word, number, ok := strings.Cut(text, " "); ok {
		value, err := strconv.ParseFloat(number, 64)
		switch {
		case err != nil || value-value != 0: // infinite or NaN
		case word == "normal" && value > 0:
			return nn.FixedScheme(nn.Normal(value)), nil
		case word == "constant":
			return nn.FixedScheme(nn.Constant(value)), nil
		}
	}
	return nil, fmt.Errorf("unknown init %q: use one of %s", text, strings.Join(Inits(), ", "))
}

// mustParseInitScheme is parseInitScheme for a text that is known to be valid.
func mustParseInitScheme(text string) nn.Scheme {
	s, err := parseInitScheme(text)
	if err != nil {
		return nil
	}
	return s
}

// sampleInitializer returns four values that init computes from a fixed stream of numbers.
// Initializers are functions, so two of them are compared by these values.
func sampleInitializer(init nn.Initializer) []float64 {
	draw := 0
	v := make([]float64, 4)
	init(func() float64 { draw++; return float64(draw*37%101) / 101 }, v)
	return v
}

// findInitNames returns the names by which a spec can select an initializer that computes
// the same values as init. There can be several names if fan-in and fan-out are equal. The
// name of PyTorch's initializer is "", because it is the default.
func findInitNames(init nn.Initializer, fanIn, fanOut int) ([]string, error) {
	var names []string
	want := sampleInitializer(init)
	candidates := []string{"pytorch", "glorot_uniform", "kaiming_normal", "kaiming_fan_out", formatInitScheme("constant", want[0])}
	if unit := sampleInitializer(nn.Normal(1)); unit[0] != 0 {
		candidates = append(candidates, formatInitScheme("normal", want[0]/unit[0]))
	}
	for _, name := range candidates {
		s, err := parseInitScheme(name)
		if err == nil && slices.Equal(sampleInitializer(s(fanIn, fanOut)), want) {
			names = append(names, strings.TrimPrefix(name, "pytorch"))
		}
	}
	if len(names) > 0 {
		return names, nil
	}
	return nil, fmt.Errorf("a spec cannot express the initial values: use one of the initializers %s", strings.Join(Inits(), ", "))
}

// formatInitScheme formats an initializer with a number, such as "normal 0.02". It removes rounding
// errors from the number.
func formatInitScheme(word string, value float64) string {
	short, err := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 12, 64), 64)
	if err != nil {
		short = value
	}
	return word + " " + strconv.FormatFloat(short, 'g', -1, 64)
}
