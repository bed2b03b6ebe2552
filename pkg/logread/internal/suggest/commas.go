package suggest

import (
	"regexp"
	"strings"
)

// Programs in some languages print 12,4 instead of 12.4. A comma between digits is a decimal comma
// only if the lines of the file show it: it may also separate thousands (1,234) or two numbers
// (devices 0,1).

var (
	// commaPattern matches a number with a decimal comma.
	commaPattern = regexp.MustCompile(`^[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+(?:[eE][+-]?\d+)?`)
	// aloneWithComma matches two numbers with a comma between them, and nothing but a unit attached.
	aloneWithComma = regexp.MustCompile(`(?:^|[\s=(\[|]|[^\d\s]:)([+-]?\d+,\d+)(?:$|[^\d,.]|[,.](?:$|\D))`)
	// thousands matches a number whose comma may separate thousands.
	thousands = regexp.MustCompile(`^[+-]?[1-9]\d{0,2},\d{3}$`)
	// decimalPoint matches a number with a decimal point.
	decimalPoint = regexp.MustCompile(`(?:^|[^\d.,])\d+\.\d+(?:$|[^\d.,]|[,.](?:$|\D))`)
	// commaList matches a list of at least three numbers without blanks.
	commaList = regexp.MustCompile(`\d,\d+,\d`)
)

// mayHaveCommas reports whether all numbers of a line that have a fraction may have a decimal comma.
func mayHaveCommas(text string) bool {
	return strings.Contains(text, ",") && !decimalPoint.MatchString(text) && !commaList.MatchString(text)
}

// hasDecimalCommas reports whether the numbers of a file have decimal commas: at least two different
// numbers must have a comma that cannot separate thousands, and none of their lines may have a
// decimal point or a list.
func hasDecimalCommas(file File) bool {
	numbers := map[string]bool{}
	for _, line := range file.Lines {
		if line.Used || !strings.Contains(line.Text, ",") {
			continue
		}
		for _, m := range aloneWithComma.FindAllStringSubmatch(line.Text, -1) {
			if thousands.MatchString(m[1]) {
				continue
			}
			if !mayHaveCommas(line.Text) {
				return false
			}
			numbers[m[1]] = true
		}
	}
	return len(numbers) > 1
}

// refuseCommas skips pairs of numbers with a comma between them whose meaning is not known.
func (c *candidate) refuseCommas() {
	tokens := c.variants[0].tokens
	isComma := func(i int) bool {
		return i >= 0 && i < len(tokens) && tokens[i].kind == markToken && tokens[i].text == ","
	}
	slot := 0
	for i, t := range tokens {
		if !t.isSlot() {
			continue
		}
		if t.whole && isComma(i+1) && i+2 < len(tokens) && tokens[i+2].kind == numberToken && !strings.Contains(tokens[i+2].text, ".") &&
			!isComma(i-1) && !isComma(i+3) && slot+1 < len(c.meanings) {
			for k := slot; k <= slot+1; k++ {
				c.meanings[k] = meaning{why: "a comma between digits: a decimal comma, or two numbers"}
			}
		}
		slot++
	}
}
