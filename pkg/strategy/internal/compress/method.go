// Package compress implements the lossy exchanges of gradients that strategy ddp offers: rounding
// to 16 bits, the largest elements only (top-k), and a product of two small matrices (PowerSGD).
//
// What a worker does not send of its gradient is its rest. Each method adds the rest to the next
// gradient before it compresses, and computes the new rest (error feedback: S. P. Karimireddy et
// al., "Error feedback fixes SignSGD and other gradient compression schemes", arXiv:1901.09847). So
// nothing is lost, only late. All ranks get the same bits.
package compress

import (
	"fmt"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
)

// The names of the methods.
const (
	FP16     = "fp16"
	BF16     = "bf16"
	TopK     = "topk"
	PowerSGD = "powersgd"
)

// names returns the names of the methods.
func names() []string { return []string{FP16, BF16, TopK, PowerSGD} }

// The default options of methods.
const (
	defaultRatio = 0.01
	defaultRank  = 4
)

// Method is a method with its option.
type Method struct {
	Name  string
	Ratio float64 // topk: the part of the elements that is sent
	Rank  int     // powersgd: the rank of the product
}

// Parse returns the method that text describes: a name, possibly followed by a colon and its
// option, such as "topk:0.05" or "powersgd:2".
func Parse(text string) (Method, error) {
	name, option, hasOption := strings.Cut(text, ":")
	m := Method{Name: name}
	var err error
	switch name {
	case FP16, BF16:
		if hasOption {
			return Method{}, fmt.Errorf("got option %q of %s, which has no options: use %s", option, name, name)
		}
	case TopK:
		m.Ratio = defaultRatio
		if hasOption {
			m.Ratio, err = strconv.ParseFloat(option, 64)
		}
		if err != nil || !(m.Ratio > 0 && m.Ratio <= 1) {
			return Method{}, fmt.Errorf("invalid ratio %q: use the part of the elements to send, above 0 and at most 1, as in topk:%v", option, defaultRatio)
		}
	case PowerSGD:
		m.Rank = defaultRank
		if hasOption {
			m.Rank, err = strconv.Atoi(option)
		}
		if err != nil || m.Rank < 1 {
			return Method{}, fmt.Errorf("invalid rank %q: use a whole number, at least 1, as in powersgd:%d", option, defaultRank)
		}
	default:
		return Method{}, fmt.Errorf("unknown method %q%s: use %s", name, nearest.Hint(name, names()), english.Either(names()))
	}
	return m, nil
}

// String returns the name with the option in effect, such as "topk:0.01".
func (m Method) String() string {
	switch m.Name {
	case TopK:
		return m.Name + ":" + strconv.FormatFloat(m.Ratio, 'g', -1, 64)
	case PowerSGD:
		return m.Name + ":" + strconv.Itoa(m.Rank)
	}
	return m.Name
}

// number is the type of a gradient's elements.
type number interface{ float32 | float64 }
