package pkg_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"lockstep/pkg/data"
	"lockstep/pkg/figure"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/launch"
	"lockstep/pkg/logread"
	"lockstep/pkg/model"
	"lockstep/pkg/predict"
	"lockstep/pkg/report"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
	"lockstep/pkg/train"
	"lockstep/pkg/tune"
)

// TestNotebooksMeetNoInternalType follows fields and methods from the types that a
// notebook begins with to all types of this module that it can reach. None may be
// declared in an internal package: %T and the help of the kernel must show a name that
// a cell can write.
func TestNotebooksMeetNoInternalType(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var follow func(typ reflect.Type, from string)
	follow = func(typ reflect.Type, from string) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		path := typ.PkgPath()
		if strings.HasPrefix(path, pkgPath) && strings.Contains(path, "/internal/") {
			if typ == reflect.TypeFor[plan.Options]() {
				return // of train.Config.LoweringOptions, which package tune calls; of no use in a cell
			}
			t.Errorf("%s has the type %s, which is declared in %s", from, typ, path)
			return
		}
		if typ.Name() != "" && !strings.HasPrefix(path, pkgPath) { // another module's type, or a basic type
			return
		}
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			for k := range m.Type.NumOut() {
				follow(m.Type.Out(k), fmt.Sprintf("result %d of %s.%s", k+1, typ, m.Name))
			}
			for k := range m.Type.NumIn() {
				follow(m.Type.In(k), fmt.Sprintf("parameter %d of %s.%s", k, typ, m.Name))
			}
		}
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			follow(typ.Elem(), from)
		case reflect.Struct:
			follow(reflect.PointerTo(typ), from)
			for i := range typ.NumField() {
				if f := typ.Field(i); f.IsExported() {
					follow(f.Type, fmt.Sprintf("%s.%s", typ, f.Name))
				}
			}
		}
	}
	for _, v := range []any{
		&scaling.Study{}, &scaling.GateResult{}, &logread.Logs{}, &logread.Options{}, &runs.Run{},
		&figure.Options{}, &figure.Figure{}, &report.Options{}, &launch.Job{}, &launch.Sweep{},
		&train.Config{}, &train.Predictor{}, &predict.Predictor{}, &predict.HeldOutScores{}, &tune.LoaderOptions{}, &tune.Trials{}, &tune.BatchSearch{},
		&model.UNet2DConfig{}, &data.CellsOptions{},
	} {
		follow(reflect.TypeOf(v), reflect.TypeOf(v).String())
	}
	if len(seen) < 150 {
		t.Errorf("only %d types were reached", len(seen))
	}
}
