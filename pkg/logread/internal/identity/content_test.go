package identity

import (
	"reflect"
	"slices"
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// identityFields returns the fields of runs.Info and record.Part with which a reader states a
// property that identifies a run.
func identityFields() map[string]runs.Property {
	return map[string]runs.Property{
		"Info.Workers":        runs.PropertyWorkers,
		"Info.Nodes":          runs.PropertyNodes,
		"Info.Seed":           runs.PropertySeed, // if SeedKnown
		"Info.Series":         runs.PropertySeries,
		"Info.BatchPerWorker": runs.PropertyBatch,
		"Info.GlobalBatch":    runs.PropertyBatch,
		"Info.Config":         runs.PropertyModel,
		"Part.Rank":           runs.PropertyRank, // if RankKnown
	}
}

// otherFields returns the fields that describe a run, but do not identify it.
func otherFields() []string {
	return []string{
		"Info.Schema", "Info.Study", "Info.Status", "Info.Error", "Info.Started", "Info.Ended", "Info.WallSeconds", "Info.Command",
		"Info.Engine", "Info.Strategy", "Info.Collective", "Info.ThreadsPerWorker", "Info.Parameters", "Info.SamplesPerEpoch",
		"Info.FLOPsPerStep", "Info.PeakFLOPS", "Info.Binding", "Info.Processes", "Info.RankSource", "Info.Host", "Info.Versions", "Info.Git", "Info.JobIDs",
		"Info.Accelerator", "Info.GPUs", "Info.Notes", "Info.Profiler", "Info.Checkpoint", "Info.EnergyJoules", "Info.Test", "Info.Final", "Info.Load", "Info.Unreal", "Info.OptimizerBytes", "Info.CompleteOptimizerBytes", "Info.SentFormula", "Info.Source",
		"Part.Run", "Part.Role", "Part.Evidence", "Part.Line", "Part.SeedKnown", "Part.SeriesFromPath", "Part.RankKnown", "Part.Ranks", "Part.RanksProblem", "Part.SumRates", "Part.WorkersDerived", "Part.Resumes",
		"Part.State", "Part.StateOf", "Part.Report", "Part.Source",
	}
}

// TestContentEvidenceOfEachField: addContentEvidence adds evidence for each field that identifies a run, and each
// field of a run is known to identify it or not. A field that is added must be added to
// identityFields, with evidence, or to otherFields.
func TestContentEvidenceOfEachField(t *testing.T) {
	var p record.Part
	structs := map[string]reflect.Value{"Info.": reflect.ValueOf(&p.Run.Info).Elem(), "Part.": reflect.ValueOf(&p).Elem()}
	shown := map[runs.Property]bool{}
	for prefix, s := range structs {
		for field := range s.Type().Fields() {
			name := prefix + field.Name
			property, identifies := identityFields()[name]
			if identifies == slices.Contains(otherFields(), name) {
				t.Errorf("%s must be in either identityFields or otherFields", name)
			}
			if !identifies {
				continue
			}
			shown[property] = true
			p = record.Part{SeedKnown: property == runs.PropertySeed, RankKnown: property == runs.PropertyRank}
			want := record.Evidence{Property: property, Origin: runs.Origin{Source: runs.SourceContent, Detail: "line 7"}}
			switch f := s.FieldByIndex(field.Index); f.Kind() {
			case reflect.Int, reflect.Int64:
				f.SetInt(8)
				want.Number = 8
			case reflect.String:
				f.SetString("resnet50")
				want.Text = "resnet50"
			default:
				f.Set(reflect.ValueOf(map[string]any{"model": "resnet50"}))
				want.Text, want.Origin.Detail = "resnet50", "line 7: model"
			}
			addContentEvidence(&p, runs.SourceContent, "line 7")
			if !reflect.DeepEqual(p.Evidence, []record.Evidence{want}) {
				t.Errorf("%s: got the evidence %+v, want %+v", name, p.Evidence, want)
			}
		}
	}
	for _, property := range runs.Properties() {
		if !shown[property] {
			t.Errorf("no field shows the property %s", property)
		}
	}
}

// TestContentEvidenceOfZeroSeedAndRank: 0 is a seed and a rank if the content states it, and no evidence
// otherwise.
func TestContentEvidenceOfZeroSeedAndRank(t *testing.T) {
	p := record.Part{SeedKnown: true, RankKnown: true}
	addContentEvidence(&p, runs.SourceContent, "")
	var got []string
	for _, c := range p.Evidence {
		got = append(got, c.String())
	}
	if want := []string{"seed 0", "rank 0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	p = record.Part{Rank: 3}
	p.Run.Info.Seed = 5
	addContentEvidence(&p, runs.SourceContent, "")
	if len(p.Evidence) > 0 {
		t.Errorf("got %v of a seed and a rank that are not known, want none", p.Evidence)
	}
}
