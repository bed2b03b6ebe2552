package logread

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/files"
	"lockstep/pkg/logread/internal/identity"
	"lockstep/pkg/logread/internal/pattern"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// TestEvidenceRemoved leaves out each kind of evidence about a run in turn, and checks that only the
// properties change that it supports, and that the next strongest evidence counts then.
func TestEvidenceRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "studies")
	write(t, dir, map[string]string{
		"7GPU/unet_6gpus_seed5.log": "+ srun -n 4 -N 2 python resnet.py --seed 3\n[rank0]: World size: 2\n[rank0]: Epoch 1/1\n[rank1]: Epoch 1/1\n[rank0]: 9/9 - 5s - loss: 2.0\n[rank1]: 9/9 - 5s - loss: 2.0\n",
		"7GPU/hparams.yaml":         "world_size: 3\nnum_nodes: 3\nseed: 8\n",
	})
	as, err := pattern.Parse("*.log=workers:1,series:mine")
	check(t, err)
	read := func(ignores func(record.Evidence) bool) runs.Run {
		lists, err := files.List(dir)
		check(t, err)
		parts, err := files.ReadAll(t.Context(), lists[0], nil)
		check(t, err)
		d := identity.Resolver{Root: dir, Patterns: func(string) []pattern.Pattern { return []pattern.Pattern{as} }, Ignores: ignores}
		found := d.IdentifyRuns(parts)
		if len(found) != 1 {
			t.Fatalf("%d runs, want 1", len(found))
		}
		return found[0]
	}
	describe := func(r runs.Run) map[runs.Property]string {
		return map[runs.Property]string{
			runs.PropertyWorkers: fmt.Sprint(r.Info.Workers), runs.PropertyNodes: fmt.Sprint(r.Info.Nodes),
			runs.PropertySeed: fmt.Sprint(r.Info.Seed), runs.PropertySeries: r.Info.Series,
		}
	}
	all := describe(read(nil))
	var without []string // sources, in the order of their strength
	for _, c := range []struct {
		source runs.Source
		kind   record.EvidenceKind
		want   string // what changes if this kind is left out
		rest   string // workers, nodes, seed and series if this kind and all stronger ones are left out
	}{
		{runs.SourceUser, record.Stated, "workers=2 series=resnet", "2 3 8 resnet"},
		{runs.SourceContent, record.Stated, "", "3 3 8 resnet"},
		{runs.SourceConfig, record.Stated, "nodes=2 seed=3", "4 2 3 resnet"},
		{runs.SourceCommand, record.Stated, "", "2 0 5 unet"},
		{runs.SourceContent, record.AtLeast, "", "7 0 5 unet"},
		{runs.SourceFolderName, record.Stated, "", "6 0 5 unet"},
		{runs.SourceFileName, record.Stated, "", "0 0 0 "},
	} {
		isKind := func(e record.Evidence) bool {
			return e.Origin.Source == c.source && (e.Kind == c.kind || e.Kind.IsStated() && c.kind == record.Stated)
		}
		got := describe(read(isKind))
		var changed []string
		for _, p := range runs.Properties() {
			if got[p] != all[p] {
				changed = append(changed, fmt.Sprintf("%s=%s", p, got[p]))
			}
		}
		if text := strings.Join(changed, " "); text != c.want {
			t.Errorf("without %s %d: %s changes, want %s", c.source, c.kind, text, c.want)
		}
		without = append(without, fmt.Sprint(c.source, c.kind))
		rest := describe(read(func(e record.Evidence) bool {
			kind := e.Kind
			if kind.IsStated() {
				kind = record.Stated
			}
			return slices.Contains(without, fmt.Sprint(e.Origin.Source, kind))
		}))
		if text := fmt.Sprint(rest[runs.PropertyWorkers], rest[runs.PropertyNodes], rest[runs.PropertySeed], rest[runs.PropertySeries]); strings.ReplaceAll(c.rest, " ", "") != text {
			t.Errorf("without %s and stronger evidence: %s, want %s", c.source, text, c.rest)
		}
	}
}

// TestEvidenceAloneRemoved does the same for the rows of the table of strengths that TestEvidenceRemoved lacks:
// without its only evidence, the number of workers of a run is unknown, and nothing else changes.
func TestEvidenceAloneRemoved(t *testing.T) {
	keras := kerasOf(5, "2.0")
	for name, c := range map[string]struct {
		files   map[string]string
		pattern string
		source  runs.Source
		kind    record.EvidenceKind
		workers int
	}{
		"files of a pattern with ranks": {map[string]string{"x/r0.log": keras, "x/r1.log": keras, "x/r2.log": keras}, "r{rank}.log", runs.SourceUser, record.AtLeast, 3},
		"batches":                       {map[string]string{"x/a.log": "TensorFlow:  1.15\nModel:       r50\nDataset:     x (synthetic)\nBatch size:  16 global\n             8 per device\ntotal images/sec: 90.00\n"}, "", runs.SourceContent, record.Derived, 2},
		"devices":                       {map[string]string{"x/a.log": "Using 2 GPUs\n" + keras}, "", runs.SourceContent, record.Devices, 2},
		"names of runs":                 {map[string]string{"x/a.csv": "\"Step\",\"a-2gpu - train/loss\"\n\"0\",\"1.5\"\n\"10\",\"0.5\"\n"}, "", runs.SourceRunName, record.Stated, 2},
		"folders of ranks":              {map[string]string{"x/rank0/a.log": keras, "x/rank1/a.log": keras}, "", runs.SourceFolderName, record.AtLeast, 2},
		"files of ranks":                {map[string]string{"x/rank0.log": keras, "x/rank1.log": keras}, "", runs.SourceFileName, record.AtLeast, 2},
	} {
		dir := filepath.Join(t.TempDir(), "studies")
		write(t, dir, c.files)
		read := func(ignores func(record.Evidence) bool) runs.Run {
			lists, err := files.List(dir)
			check(t, err)
			parts, err := files.ReadAll(t.Context(), lists[0], nil)
			check(t, err)
			d := identity.Resolver{Root: dir, Ignores: ignores, Patterns: func(string) (all []pattern.Pattern) {
				if c.pattern != "" {
					as, err := pattern.Parse(c.pattern)
					check(t, err)
					all = append(all, as)
				}
				return all
			}}
			found := d.IdentifyRuns(parts)
			if len(found) != 1 {
				t.Fatalf("%s: %d runs, want 1", name, len(found))
			}
			return found[0]
		}
		all, without := read(nil), read(func(e record.Evidence) bool { return e.Origin.Source == c.source && e.Kind == c.kind })
		if all.Info.Workers != c.workers || without.Info.Workers != 0 {
			t.Errorf("%s: %d workers, and %d without the evidence; want %d and 0", name, all.Info.Workers, without.Info.Workers, c.workers)
		}
		if all.Info.Series != without.Info.Series || all.Info.Seed != without.Info.Seed || all.Info.Nodes != without.Info.Nodes {
			t.Errorf("%s: got %+v, and %+v without the evidence", name, all.Info, without.Info)
		}
	}
}
