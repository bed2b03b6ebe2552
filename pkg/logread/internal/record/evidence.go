package record

import (
	"fmt"

	"lockstep/pkg/runs"
)

// Kind states how a source shows a value.
type Kind int

// The kinds of evidence.
const (
	Stated     Kind = iota // the source states the value
	PerNode                // the source states it, maybe for each node
	DeviceList             // the source lists the devices, maybe of each node
	Device                 // the source states the value, or the number of one device, as --gpus 2 may do
	AtLeast                // the value counts the ranks that lines or files show; there may be more
	Derived                // the value is computed from others
)

// IsStated reports whether the source states the value in some way.
func (k Kind) IsStated() bool { return k < AtLeast }

// Evidence is what one source shows about a property that identifies a run. Several pieces of
// evidence may contradict each other; package identity decides which of them counts.
type Evidence struct {
	Property runs.Property
	Number   int64  // number of workers or nodes, rank, seed or batch size
	Text     string // the series or the model; empty for a property that is a number
	Kind     Kind
	Origin   runs.Origin
}

// String returns the property and its value, such as "workers 4".
func (e Evidence) String() string {
	if e.Text != "" {
		return fmt.Sprintf("%s %q", e.Property, e.Text)
	}
	return fmt.Sprintf("%s %d", e.Property, e.Number)
}

// AddEvidence adds what source shows about a number that identifies the run. detail is the text
// that shows it, such as a command.
func (p *Part) AddEvidence(property runs.Property, n int64, kind Kind, source runs.Source, detail string) {
	p.Evidence = append(p.Evidence, Evidence{Property: property, Number: n, Kind: kind, Origin: runs.Origin{Source: source, Detail: detail}})
}

// AddTextEvidence is like AddEvidence for a stated property that is a text.
func (p *Part) AddTextEvidence(property runs.Property, text string, source runs.Source, detail string) {
	p.Evidence = append(p.Evidence, Evidence{Property: property, Text: text, Origin: runs.Origin{Source: source, Detail: detail}})
}
