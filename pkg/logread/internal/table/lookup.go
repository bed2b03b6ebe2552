package table

import (
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
)

// namesField reports whether the header alone shows the kind of the table or the field of a column.
// Only then does isTable survey the rows: the lines of most logs have commas and could be a table.
func (p preamble) namesField(mappings []ColumnMapping) bool {
	header := p.header
	if header == nil {
		header = make([]string, p.width)
	}
	isMapped := func(m ColumnMapping) bool {
		i, _ := m.findColumn(header)
		return i >= 0
	}
	isKnown := func(name string) bool {
		f, _ := lookUpColumn(name, tableKind)
		return f != nil
	}
	return detectTableKind(header) != tableKind || slices.ContainsFunc(mappings, isMapped) || slices.ContainsFunc(header, isKnown)
}

// lookUpColumn returns the field of a column's name in a table of the given kind, or nil, and the factor
// of the unit in the name.
func lookUpColumn(name, kind string) (f *fields.Field, factor float64) {
	base, unit := splitUnit(name)
	key := fields.Normalize(base)
	if f, known := lookUpWithBrackets(key, fields.Normalize(unit)); known {
		return f, 1
	}
	switch kind {
	case nvidiaKind:
		switch key {
		case "index":
			return fieldNamed(fields.Rank), 1
		case "name", "gpuname":
			return fieldNamed(fields.Model), 1
		case "timestamp":
			return fieldNamed(fields.Timestamp), 1
		}
		return nil, 1
	case tensorBoardKind:
		if key == "walltime" {
			return fieldNamed(fields.Timestamp), 1
		}
	case wandbKind, mlflowTableKind:
		if key == "name" {
			return fieldNamed(fields.Run), 1
		}
	}
	f = fields.LookupColumn(key)
	if f == nil {
		f = lookUpCount(key)
	}
	if f == nil && strings.HasSuffix(key, "epoch") { // as Lightning names the mean over an epoch
		if f = fields.LookupColumn(strings.TrimSuffix(key, "epoch")); f != nil && epochField(f.Name) == nil {
			f = nil
		}
	}
	if f == nil && unit == "" { // such as epoch_time_ms
		if i := strings.LastIndexAny(base, "_ -."); i > 0 {
			f, unit = fields.LookupColumn(base[:i]), base[i+1:]
			if f != nil {
				if _, ok := unitFactor(f.Kind, unit); !ok {
					f = nil
				}
			}
		}
	}
	if f == nil {
		return nil, 1
	}
	if factor, ok := unitFactor(f.Kind, unit); ok {
		return f, factor
	}
	if f.Kind == fields.Seconds && unit != "" && !isQualifier(unit) {
		return nil, 1 // an unknown unit of time: the values are a curve, not seconds
	}
	return f, 1
}

func isQualifier(text string) bool {
	switch fields.Normalize(text) {
	case "avg", "average", "mean", "median", "max", "min", "total", "sum", "wall", "wallclock", "train", "training", "epoch", "perepoch", "step", "perstep":
		return true
	}
	return false
}

// lookUpWithBrackets returns the field of a name such as "loss (val)", or nil, whose brackets
// contain a part of the data set or of the meaning. known is false if they may contain a unit.
func lookUpWithBrackets(key, inBrackets string) (f *fields.Field, known bool) {
	if inBrackets == "" || fields.LookupColumn(key) == nil {
		return nil, false
	}
	for _, name := range []string{key + inBrackets, inBrackets + key} {
		if f := fields.LookupColumn(name); f != nil {
			return f, true
		}
	}
	switch inBrackets {
	case "test", "testing", "val", "valid", "validation", "eval", "dev":
		return nil, true
	}
	return nil, false
}

// lookUpCount returns the field of a normalized name that is a counter, such as epochno, or a
// number of workers, such as noofgpus, or nil.
func lookUpCount(key string) *fields.Field {
	for _, end := range []string{"no", "nr", "num", "number", "index", "idx", "id"} {
		if base, ok := strings.CutSuffix(key, end); ok {
			if f := fields.LookupColumn(base); f != nil && slices.Contains([]string{fields.Epoch, fields.Step, fields.Rank, fields.Seed, fields.Run}, f.Name) {
				return f
			}
		}
	}
	for _, start := range []string{"noof", "nrof", "numof", "numberof", "countof"} {
		if base, ok := strings.CutPrefix(key, start); ok {
			if f := fields.LookupColumn(base); f != nil && slices.Contains([]string{fields.Workers, fields.Nodes, fields.WorkersPerNode, fields.Samples}, f.Name) {
				return f
			}
		}
	}
	return nil
}

// splitUnit splits a unit in brackets, or "", from the end of a column's name.
func splitUnit(name string) (base, unit string) {
	name = strings.TrimSpace(name)
	for _, brackets := range []string{"()", "[]"} {
		i := strings.LastIndexByte(name, brackets[0])
		if i > 0 && name[len(name)-1] == brackets[1] {
			return strings.TrimSpace(name[:i]), strings.TrimSpace(name[i+1 : len(name)-1])
		}
	}
	return name, ""
}
