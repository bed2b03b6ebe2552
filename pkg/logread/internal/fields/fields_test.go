package fields

import (
	"strings"
	"testing"
)

// TestNames checks that each name belongs to one field, and that the names of a field that can be used in lines
// and tables lead to it.
func TestNames(t *testing.T) {
	owner := map[string]string{}
	for _, f := range All() {
		if ByName(f.Name) == nil || !f.InTemplates && !f.InTables || f.About == "" {
			t.Errorf("%s: incomplete", f.Name)
		}
		for name := range strings.FieldsSeq(f.Names + " " + f.ColumnNames + " " + f.WeakNames) {
			key := Normalize(name)
			if strings.Contains(" "+f.WeakNames+" ", " "+name+" ") {
				key = "weak " + key // "batch" above a column is a batch size, and in a line counts steps
			}
			if o := owner[key]; o != "" && o != f.Name {
				t.Errorf("%q belongs to %s and to %s", name, o, f.Name)
			}
			owner[key] = f.Name
			if LookupColumn(name) == nil && LookupWeakName(name) == nil {
				t.Errorf("%q leads to no field", name)
			}
		}
	}
}

// TestOfValidation checks values of the validation whose names may lack a prefix.
func TestOfValidation(t *testing.T) {
	for name, want := range map[string]string{"loss": ValLoss, "acc": ValAccuracy, "mIoU": IoU, "time": ValSeconds, "lr": "", "epoch_time": "", "gain": ""} {
		got := ""
		if f := LookupValidationField(name, Lookup); f != nil {
			got = f.Name
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"gpus": Workers, "num_gpus": Workers, "batch": Batch} {
		if f := LookupColumn(name); f == nil || f.Name != want {
			t.Errorf("%s: got %v, want %s", name, f, want)
		}
	}
	if Lookup("gpus") != nil || Lookup("max_epoch") != nil || Lookup("eta") != nil {
		t.Error("a name that has another meaning in a line leads to a field")
	}
}
