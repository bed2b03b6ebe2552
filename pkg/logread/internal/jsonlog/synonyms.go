package jsonlog

import (
	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// place is what a number says about where the other numbers of an object belong.
type place int

const (
	noPlace place = iota
	placeEpoch
	placeStep // over the whole run
	placeIter // MMCV: within the epoch; MMEngine: over the whole run, beside a step
)

// placeOf returns the place that a key names.
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

// epochValue sets a value of an epoch. of is nil for a name that sets none.
type epochValue struct {
	of         func(*runs.Epoch) *float64
	percentage bool // values above 1 are percentages
	perEpoch   bool // in an object with a step, the value is not that of the epoch
}

// valueIn returns the value of an epoch that a name sets, by the table of fields. val is
// set for values of the validation, whose names may lack this prefix.
func (n *jsonName) valueIn(val bool) epochValue {
	to := &n.values[0]
	if val {
		to = &n.values[1]
	}
	if *to != nil {
		return **to
	}
	v := &epochValue{}
	*to = v
	f := fields.Lookup(n.text)
	if val {
		f = fields.OfValidation(n.text, fields.Lookup)
	}
	if f != nil && f.OfEpoch != nil {
		*v = epochValue{of: f.OfEpoch, percentage: f.Kind == fields.Fraction}
		v.perEpoch = f.Name == fields.EpochSeconds || f.Name == fields.SamplesPerSecond || f.Name == fields.ValSeconds
	}
	return *v
}
