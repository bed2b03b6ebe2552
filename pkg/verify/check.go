package verify

import (
	"fmt"
	"math"
)

// Check is the result of testing one claim.
type Check struct {
	Name   string  `json:"name"`
	OK     bool    `json:"ok"`
	Value  float64 `json:"value"` // the measured number; NaN if the claim is not about a number
	Limit  float64 `json:"limit"` // the number that Value is compared with; NaN like Value
	Detail string  `json:"detail"`
}

// String returns one line: "ok" or "FAILED", the claim, the measured number with its limit, and the
// details.
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
