package cudnn

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unsafe"
)

// maxKnobs is more than the number of knobs of any engine (cuDNN 9.21 has 44 kinds of
// knobs).
const maxKnobs = 64

// choices returns a configuration's engine and knobs as text, which identifies it among the
// configurations of a graph, or "" if the library does not report them.
func (l *Library) choices(config Descriptor) string {
	b := l.builder()
	defer func() { _ = b.release() }()
	engine := b.create(DescEngine)
	var knobs [maxKnobs]Descriptor
	for i := range knobs {
		knobs[i] = b.create(DescKnobChoice)
	}
	var n, index int64
	if b.err != nil ||
		l.GetAttribute(config, AttrConfigEngine, TypeDescriptor, 1, &n, unsafe.Pointer(&engine)) != Success ||
		l.GetAttribute(engine, AttrEngineIndex, TypeInt64, 1, &n, unsafe.Pointer(&index)) != Success ||
		l.GetAttribute(config, AttrConfigKnobs, TypeDescriptor, maxKnobs, &n, unsafe.Pointer(&knobs[0])) != Success || n > maxKnobs {
		return ""
	}
	text := fmt.Sprint(index)
	for _, knob := range knobs[:max(n, 0)] {
		var kind int32
		var value int64
		if l.GetAttribute(knob, AttrKnobType, TypeKnobType, 1, &n, unsafe.Pointer(&kind)) != Success ||
			l.GetAttribute(knob, AttrKnobValue, TypeInt64, 1, &n, unsafe.Pointer(&value)) != Success {
			return ""
		}
		text += fmt.Sprintf(" %d=%d", kind, value)
	}
	return text
}

// PlanOf creates a plan from the Choices of an earlier Plan, without a heuristic. The graph
// must have the same operations, and the library and the kind of device must be the same.
// Unlike PlanFromJSON, which cuDNN supports for some engines only, it works for engines
// that are compiled when their plan is created.
func (g *Graph) PlanOf(choices string) (*Plan, error) {
	lib := g.b.lib
	b := lib.builder()
	text, rest, _ := strings.Cut(choices, " ")
	index, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("make plan of %q: it names no engine", choices)
	}
	engine := b.create(DescEngine)
	b.descriptors(engine, AttrEngineGraph, g.desc)
	b.ints(engine, AttrEngineIndex, index)
	b.finalize(engine, fmt.Sprintf("engine %d", index))
	var knobs []Descriptor
	for word := range strings.FieldsSeq(rest) {
		var kind int32
		var value int64
		if _, err := fmt.Sscanf(word, "%d=%d", &kind, &value); err != nil {
			return nil, errors.Join(fmt.Errorf("make plan of %q: %q is no knob", choices, word), b.release())
		}
		knob := b.create(DescKnobChoice)
		b.enum(knob, AttrKnobType, TypeKnobType, kind)
		b.ints(knob, AttrKnobValue, value)
		b.finalize(knob, "knob "+word)
		knobs = append(knobs, knob)
	}
	config := b.create(DescEngineConfig)
	b.descriptors(config, AttrConfigEngine, engine)
	if len(knobs) > 0 {
		b.descriptors(config, AttrConfigKnobs, knobs...)
	}
	b.finalize(config, "configuration of engine "+choices)
	if b.err != nil {
		return nil, errors.Join(b.err, b.release())
	}
	p, err := lib.planOf(g.handle, b, config)
	if err != nil {
		return nil, errors.Join(err, b.release())
	}
	p.Rank, p.Choices = -1, choices
	return p, nil
}
