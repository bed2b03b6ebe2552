package tidy

import (
	"math"
	"testing"
)

// TestRowInfinity checks the JSON form of infinity, which JSON cannot represent
// as a number.
func TestRowInfinity(t *testing.T) {
	text, err := Row{Rank: -1, Step: -1, Value: math.Inf(-1), Name: `a"b`}.formatJSON()
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"run":"","series":"","workers":0,"seed":0,"rank":null,"epoch":null,"step":null,"name":"a\"b","value":"-Inf"}`; text != want {
		t.Errorf("%s, expected %s", text, want)
	}
}
