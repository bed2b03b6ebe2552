package cudnn

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unsafe"
)

// maxKnobsPerEngine is the largest number of knobs that is read from an engine. cuDNN 9.21 has 44 kinds of
// knobs.
const maxKnobsPerEngine = 64

// readEngineChoices returns the engine of an engine configuration and the values of its knobs as
// text. For example, "1 2=0" means engine 1 with value 0 for knob 2. The text identifies a
// configuration for a graph. It is "" if the library does not report the engine or the knobs.
func (l *Library) readEngineChoices(config Descriptor) string {
	b := l.newDescriptorBuilder()
	defer func() { _ = b.release() }()
	engine := b.newDescriptor(DescEngine)
	var knobs [maxKnobsPerEngine]Descriptor
	for i := range knobs {
		knobs[i] = b.newDescriptor(DescKnobChoice)
	}
	var n, index int64
	if b.err != nil ||
		l.GetAttribute(config, AttrConfigEngine, TypeDescriptor, 1, &n, unsafe.Pointer(&engine)) != Success ||
		l.GetAttribute(engine, AttrEngineIndex, TypeInt64, 1, &n, unsafe.Pointer(&index)) != Success ||
		l.GetAttribute(config, AttrConfigKnobs, TypeDescriptor, maxKnobsPerEngine, &n, unsafe.Pointer(&knobs[0])) != Success || n > maxKnobsPerEngine {
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

// PlanFromChoices creates a plan from the Choices of an earlier Plan. The operations, the library
// and the kind of device must be the same. Unlike PlanFromJSON, it also works for engines that
// are compiled when their plan is created.
func (g *Graph) PlanFromChoices(choices string) (*Plan, error) {
	lib := g.b.lib
	b := lib.newDescriptorBuilder()
	text, rest, _ := strings.Cut(choices, " ")
	index, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("create plan from %q: no engine number", choices)
	}
	engine := b.newDescriptor(DescEngine)
	b.setDescriptors(engine, AttrEngineGraph, g.desc)
	b.setInts(engine, AttrEngineIndex, index)
	b.finalize(engine, fmt.Sprintf("engine %d", index))
	var knobs []Descriptor
	for word := range strings.FieldsSeq(rest) {
		var kind int32
		var value int64
		if _, err := fmt.Sscanf(word, "%d=%d", &kind, &value); err != nil {
			return nil, errors.Join(fmt.Errorf("create plan from %q: invalid knob %q", choices, word), b.release())
		}
		knob := b.newDescriptor(DescKnobChoice)
		b.setEnum(knob, AttrKnobType, TypeKnobType, kind)
		b.setInts(knob, AttrKnobValue, value)
		b.finalize(knob, "knob "+word)
		knobs = append(knobs, knob)
	}
	config := b.newDescriptor(DescEngineConfig)
	b.setDescriptors(config, AttrConfigEngine, engine)
	if len(knobs) > 0 {
		b.setDescriptors(config, AttrConfigKnobs, knobs...)
	}
	b.finalize(config, "configuration of engine "+choices)
	if b.err != nil {
		return nil, errors.Join(b.err, b.release())
	}
	p, err := lib.createPlanFromConfig(g.handle, b, config)
	if err != nil {
		return nil, errors.Join(err, b.release())
	}
	p.Rank, p.Choices = -1, choices
	return p, nil
}
