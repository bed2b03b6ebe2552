package verify

import (
	"fmt"
	"math"
)

// Check is one claim that was tested.
type Check struct {
	Name   string  `json:"name"`
	OK     bool    `json:"ok"`
	Value  float64 `json:"value"` // the number found, NaN where the claim is not a number
	Limit  float64 `json:"limit"` // what it is compared with
	Detail string  `json:"detail"`
}

// String is the check as a line: ok or FAILED, the claim, and what was found.
func (c Check) String() string {
	line := "ok     "
	if !c.OK {
		line = "FAILED "
	}
	line += c.Name
	if !math.IsNaN(c.Value) {
		line += fmt.Sprintf(": %.4g (limit %.4g)", c.Value, c.Limit)
	}
	return line + "; " + c.Detail
}
