package record

import (
	"fmt"

	"lockstep/pkg/runs"
)

// Claim is what one source states about a property of a run. Several sources may contradict
// each other; package identity chooses the one that counts.
type Claim struct {
	Property runs.Property
	Number   int64  // the number of workers or nodes, the rank, the seed or the batch size
	Text     string // the series or the model; empty for a property that is a number
	Origin   runs.Origin
	// AtLeast is set if Number counts the ranks that the file shows. There may be more.
	AtLeast bool
	// PerNode is set if Number may be the number of workers on each node.
	PerNode bool
}

// String returns the property and its value, such as "workers 4".
func (c Claim) String() string {
	if c.Text != "" {
		return fmt.Sprintf("%s %q", c.Property, c.Text)
	}
	return fmt.Sprintf("%s %d", c.Property, c.Number)
}

// AddClaim adds what source states about a number that identifies the run. detail is the text
// that states it, such as a command.
func (p *Part) AddClaim(property runs.Property, n int64, source runs.Source, detail string) {
	p.Claims = append(p.Claims, Claim{Property: property, Number: n, Origin: runs.Origin{Source: source, Detail: detail}})
}

// AddTextClaim is like AddClaim for a property that is a text.
func (p *Part) AddTextClaim(property runs.Property, text string, source runs.Source, detail string) {
	p.Claims = append(p.Claims, Claim{Property: property, Text: text, Origin: runs.Origin{Source: source, Detail: detail}})
}
