package cudnn

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unsafe"
)

// maxKnobs is more than an engine has knobs (cuDNN 9.21 knows 44 kinds).
const maxKnobs = 64

// choices is a configuration's engine and knobs as text, which tells it from others of
// the same graph; "" where the library does not say.
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

// PlanOf makes the plan of a Plan's Choices again, for a graph of the same operations on
// the same library and kind of device, without asking a heuristic. Unlike a plan's text
// (JSON), which cuDNN writes for some engines only, it compiles an engine that is
// compiled when its plan is made.
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
