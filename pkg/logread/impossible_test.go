package logread

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestImpossibleTimes: in every format, a time or rate that is NaN, infinite or negative is a
// problem with its file, and no value.
func TestImpossibleTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	logs := map[string]string{
		"table_4gpus.csv":    "epoch,seconds,train_loss,val_seconds,samples_per_second\n1,10,0.5,1,100\n2,X,0.4,1,100\n3,10,0.3,X,100\n4,10,0.2,1,X\n",
		"elapsed_4gpus.csv":  "epoch,elapsed_seconds,train_loss\n1,10,0.5\n2,X,0.4\n3,30,0.5\n",
		"steps_4gpus.tsv":    "step\tstep_seconds\ttrain_loss\n1\t0.5\t0.5\n2\tX\t0.4\n3\t0.5\t0.5\n",
		"json_4gpus.jsonl":   "{\"epoch\":1,\"epoch_seconds\":10,\"train_loss\":0.5}\n{\"epoch\":2,\"epoch_seconds\":X,\"train_loss\":0.5}\n{\"epoch\":3,\"epoch_seconds\":10,\"train_loss\":0.5}\n",
		"keras_4gpus.log":    "Epoch 1/2\n196/196 - 49s - loss: 2.5\nEpoch 2/2\n196/196 - Xs - loss: 2.4\n",
		"template_4gpus.log": "ep 1 t 10 v 1 r 5 l 0.5\nep 2 t X v 1 r 5 l 0.4\nep 3 t 1 v X r 5 l 0.4\nep 4 t 1 v 1 r X l 0.4\n",
		"rows_4gpus.csv":     "run,series,workers,seed,rank,epoch,step,name,value\na,a,4,1,,1,,seconds,10\na,a,4,1,,2,,seconds,X\na,a,4,1,,2,,train_loss,NaN\n",
	}
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		for _, x := range []string{"nan", "NaN", "inf", "-5", "-inf"} {
			path := filepath.Join(dir, fmt.Sprintf("%s_%s", x, name))
			write(t, dir, map[string]string{filepath.Base(path): strings.ReplaceAll(logs[name], "X", strings.NewReplacer("nan", "NaN", "inf", "Infinity").Replace(x))})
			o := Options{}
			if strings.HasPrefix(name, "template") {
				o.Lines = []string{"ep {epoch} t {seconds} v {val_seconds} r {samples_per_second} l {train_loss}"}
			}
			problems, err := o.Rows(t.Context(), All, []string{path}, func(r Row) error {
				if isTime := strings.HasSuffix(r.Name, "seconds") || r.Name == "samples_per_second"; isTime && !(r.Value >= 0 && r.Value <= math.MaxFloat64) {
					t.Errorf("%s: got the row %v", path, r)
				}
				return nil
			})
			check(t, err)
			want := strings.Count(logs[name], "X")
			for _, p := range problems {
				if p.Line > 0 && p.File == path {
					want--
				}
			}
			if want > 0 {
				t.Errorf("%s: %d fewer problems than impossible times: %v", path, want, problems)
			}
		}
	}
}

// TestUnknownUnit: a column whose name states an unknown unit of time is a curve, not seconds.
func TestUnknownUnit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "unit_2gpus.csv")
	for unit, want := range map[string]string{"parsecs": "epoch_time (parsecs)", "min": "seconds", "avg": "seconds"} {
		write(t, filepath.Dir(path), map[string]string{filepath.Base(path): "epoch,epoch_time (" + unit + "),train_loss\n1,5,0.5\n2,5,0.4\n"})
		names := map[string]bool{}
		_, err := Rows(All, []string{path}, func(r Row) error {
			names[r.Name] = true
			return nil
		})
		check(t, err)
		if !names[want] || names["seconds"] != (want == "seconds") {
			t.Errorf("unit %s: got the values %v, want %s", unit, names, want)
		}
	}
}
