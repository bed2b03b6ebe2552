package jsonlog

import (
	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
)

// place is what a number says about where the other numbers of an object belong.
type place int

const (
	noPlace place = iota
	placeEpoch
	placeStep // over the whole run
	placeIter // MMCV: within the epoch; MMEngine: over the whole run, beside a step
)

func (r *reader) placeOf(key []byte) (p place, ok bool) {
	if p, ok = r.places[string(key)]; ok {
		return p, p != noPlace
	}
	p = placeNamed(string(key))
	if r.places == nil {
		r.places = map[string]place{}
	}
	if len(r.places) < record.MaxCurveNames {
		r.places[string(key)] = p
	}
	return p, p != noPlace
}

// placeNamed returns the place that a key names, or noPlace.
func placeNamed(key string) place {
	f := fields.Lookup(key)
	switch {
	case f == nil:
	case f.Name == fields.Epoch:
		return placeEpoch
	case key == "iter":
		return placeIter
	case f.Name == fields.Step:
		return placeStep
	}
	return noPlace
}

// fieldIn returns the field of a name in an object of the training, or of the validation if val is set. The
// names of the validation may lack this prefix.
func (n *jsonName) fieldIn(val bool) *fields.Field {
	k := 0
	if val {
		k = 1
	}
	if !n.known[k] {
		n.known[k] = true
		if n.fields[k] = fields.Lookup(n.text); val {
			n.fields[k] = fields.OfValidation(n.text, fields.Lookup)
		}
	}
	return n.fields[k]
}
