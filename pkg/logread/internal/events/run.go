package events

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// JoinEventFiles merges the event files of each run in a folder into one part. A resumed run leaves
// several files; from its first step on, a later file replaces the points of the earlier ones.
// Files with the same tags and steps that were written at the same time belong to different ranks,
// and each rank has its own curves. If a folder has several runs, Run.Dir of the second ends with
// #2, of the third with #3, and so on.
//
// All tags become curves. Some tags describe complete epochs by the convention of their writer, and
// also become epochs: epoch_loss, epoch_accuracy and epoch_lr of Keras, whose steps count epochs
// from 0; and train_loss_epoch, val_loss and similar tags of Lightning, if the file also has
// Lightning's tag epoch, which maps steps to epochs.
func JoinEventFiles(parts []*record.Part) []*record.Part {
	byFolder := map[string][]*record.Part{}
	gone := map[*record.Part]bool{}
	for _, p := range parts {
		if IsEventPart(p) {
			folder := filepath.Dir(p.Run.File)
			byFolder[folder] = append(byFolder[folder], p)
		}
	}
	for folder, files := range byFolder {
		slices.SortStableFunc(files, func(a, b *record.Part) int { return cmp.Compare(parserOf(a).began, parserOf(b).began) })
		for _, p := range files {
			gone[p] = true
		}
		for n, ranks := range groupByRunAndRank(files) {
			into := ranks[0][0]
			if gone[into] = false; n > 0 {
				into.Run.Dir = fmt.Sprintf("%s#%d", folder, n+1)
			}
			if len(ranks) > 1 {
				joinRankFiles(into, ranks, isValidationFolder(folder))
				continue
			}
			into.Run.Curves = joinCurves(ranks[0])
			into.Run.Epochs = epochsFromCurves(into.Run.Curves, isValidationFolder(folder))
			for _, p := range ranks[0][1:] {
				p.Report.AddAssumption("continues the curves of %s", into.Run.File)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p *record.Part) bool { return gone[p] })
}

// IsEventPart reports whether p is the part of an event file.
func IsEventPart(p *record.Part) bool {
	_, ok := p.Source.(*Parser)
	return ok
}

func parserOf(p *record.Part) *Parser { return p.Source.(*Parser) }

// joinCurves returns the curves of one rank. files are in chronological order.
func joinCurves(files []*record.Part) (curves []runs.Curve) {
	index := map[string]int{}
	for _, f := range files {
		if r := parserOf(f); r.restarted {
			for i := range curves {
				record.RemovePointsFrom(&curves[i], r.restart)
			}
		}
		for _, c := range parserOf(f).curves.All {
			from := c.Finish(f.Report)
			i, ok := index[from.Name]
			if !ok {
				i = len(curves)
				index[from.Name] = i
				curves = append(curves, runs.Curve{Name: from.Name, Rank: from.Rank})
			}
			record.AppendResumedCurve(&curves[i], from) // a copy, since a file that is followed continues to grow
		}
	}
	return curves
}

// isValidationFolder reports whether folder contains the event files of the validation. Keras uses
// the same tags in the folders train and validation.
func isValidationFolder(folder string) bool {
	switch filepath.Base(folder) {
	case "validation", "valid", "val":
		return true
	}
	return false
}

// kerasEpochField returns the field of an epoch that a tag of Keras sets
// (keras/callbacks: TensorBoard), or nil. validation is true for a file in the
// folder validation. The name of an accuracy may have a prefix, as in
// epoch_categorical_accuracy.
func kerasEpochField(tag string, validation bool) *fields.Field {
	name, ok := strings.CutPrefix(tag, "epoch_")
	if !ok {
		return nil
	}
	name, val := strings.CutPrefix(name, "val_") // TensorFlow 1
	if strings.HasSuffix(name, "_accuracy") {
		name = fields.Accuracy
	}
	f := fields.Lookup(name)
	if validation || val {
		f = fields.LookupValidationField(name, fields.Lookup)
	} else if f != nil && !f.DescribesTraining() {
		return nil
	}
	if f == nil || f.OfEpoch == nil {
		return nil
	}
	return f
}

// lightningEpochField returns the field of an epoch that a common tag of
// Lightning sets, or nil. A tag of training values must have the suffix _epoch,
// which marks the mean over an epoch: without it, each value belongs to a
// single step.
func lightningEpochField(tag string) *fields.Field {
	name, isMean := strings.CutSuffix(tag, "_epoch")
	f := fields.Lookup(name)
	switch {
	case strings.HasPrefix(tag, "lr-"):
		return fields.ByName(fields.LearningRate)
	case f == nil || f.OfEpoch == nil:
		return nil
	case f.DescribesTraining() && isMean && strings.HasPrefix(name, "train_"), !f.DescribesTraining() && strings.HasPrefix(name, "val_"):
		return f
	}
	return nil
}

const maxEpochNumber = 1 << 24

// epochsFromCurves returns the epochs that the curves describe, in order, or
// nil. If an epoch was logged twice, the later value counts.
func epochsFromCurves(curves []runs.Curve, validation bool) []runs.Epoch {
	var found record.RankEpochs
	put := func(epoch float64, field *fields.Field, v float64) {
		if epoch >= 0 && epoch < maxEpochNumber && epoch == math.Trunc(epoch) {
			*field.OfEpoch(found.FindOrAdd(int(epoch)+1, nil)) = v
		}
	}
	var epochOf map[int64]float64 // by step, from Lightning's tag
	for _, c := range curves {
		if c.Name == "epoch" {
			epochOf = make(map[int64]float64, len(c.Steps))
			for i, s := range c.Steps {
				epochOf[s] = c.Values[i]
			}
		}
	}
	for _, c := range curves {
		if field := kerasEpochField(c.Name, validation); field != nil {
			for i, s := range c.Steps {
				put(float64(s), field, c.Values[i])
			}
			continue
		}
		field := lightningEpochField(c.Name)
		for i, s := range c.Steps {
			if epoch, ok := epochOf[s]; ok && field != nil {
				put(epoch, field, c.Values[i])
			}
		}
	}
	slices.SortFunc(found.Epochs, record.CompareEpochs)
	return found.Epochs
}
