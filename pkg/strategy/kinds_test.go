package strategy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/collective"
)

func TestStrategies(t *testing.T) {
	names := Names()
	if len(names) == 0 || names[0] != NameDDP {
		t.Errorf("strategies %v, want %s first", names, NameDDP)
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(names))); len(sorted) != len(names) {
		t.Errorf("two strategies have the same name: %v", names)
	}
	for _, k := range Kinds() {
		if err := (Config{Name: k.Name}).Validate(); err != nil {
			t.Error(err)
		}
	}
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
}

// TestStrategyByName creates each strategy on two ranks without a GPU.
func TestStrategyByName(t *testing.T) {
	for _, name := range append(Names(), "") {
		err := together(collective.InProcess(2), func(g collective.Group) error {
			x, err := New(context.Background(), Config{Name: name}, nil, g)
			if err != nil {
				return err
			}
			if _, ok := x.(*DDP); name == "" && !ok {
				return fmt.Errorf("the default strategy is a %T, want *DDP", x)
			}
			return x.Close()
		})
		if err != nil {
			t.Error(err)
		}
	}
	_, err := New(context.Background(), Config{Name: "dpp"}, nil, collective.Single())
	if want := `unknown strategy "dpp" (did you mean ddp?): use one of ` + strings.Join(Names(), ", "); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}
