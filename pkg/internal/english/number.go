package english

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// exponentThreshold is the absolute value below which FormatNumber may write an exponent.
const exponentThreshold = 1e-2

// FormatNumber formats a number with about four digits: "194.2", "0.0126", "1.2e-05".
func FormatNumber(v float64) string {
	if a := math.Abs(v); a > 0 && a < exponentThreshold {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', DecimalPlaces(v), 64)
}

// FormatTenDigits formats a number with ten digits, or NaN as "not measured".
func FormatTenDigits(v float64) string {
	if math.IsNaN(v) {
		return "not measured"
	}
	return strconv.FormatFloat(v, 'g', 10, 64)
}

// FormatBytes formats a number of bytes with a binary unit, such as "1.5 GiB".
func FormatBytes(n int64) string {
	v, units := float64(n), []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	for v >= 1024 && len(units) > 1 {
		v, units = v/1024, units[1:]
	}
	return fmt.Sprintf("%.4g %s", v, units[0])
}

// DecimalPlaces returns the number of decimals to print so that v has about four digits.
func DecimalPlaces(v float64) int {
	switch a := math.Abs(v); {
	case a >= 1000:
		return 0
	case a >= 100:
		return 1
	case a >= 10:
		return 2
	case a != 0 && a < 0.1:
		return 4
	}
	return 3
}

// FormatInterval formats an interval with the same number of decimals for both ends:
// "[11.52, 12.40]". It returns "-" if an end is NaN.
func FormatInterval(low, high float64) string {
	if math.IsNaN(low) || math.IsNaN(high) {
		return "-"
	}
	if max(math.Abs(low), math.Abs(high)) < exponentThreshold {
		return fmt.Sprintf("[%s, %s]", FormatNumber(low), FormatNumber(high))
	}
	d := max(DecimalPlaces(low), DecimalPlaces(high))
	return fmt.Sprintf("[%s, %s]", strconv.FormatFloat(low, 'f', d, 64), strconv.FormatFloat(high, 'f', d, 64))
}

// FormatPercent formats a fraction in percent with at most one decimal: 0.95 as "95 %", 0.975 as
// "97.5 %".
func FormatPercent(share float64) string {
	text := strconv.FormatFloat(100*share, 'f', 1, 64)
	return strings.TrimSuffix(text, ".0") + " %"
}

// FormatPValue formats a p-value with two digits: "0.032", "< 0.0001".
func FormatPValue(p float64) string {
	if p < 0.0001 {
		return "< 0.0001"
	}
	return fmt.Sprintf("%.2g", p)
}

// FormatPValueWithOperator is FormatPValue for use after the letter p: "= 0.032", "< 0.0001".
func FormatPValueWithOperator(p float64) string {
	if text := FormatPValue(p); text[0] == '<' {
		return text
	}
	return "= " + FormatPValue(p)
}
