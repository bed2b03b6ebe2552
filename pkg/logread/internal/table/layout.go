package table

import (
	"slices"

	"lockstep/pkg/logread/internal/fields"
)

// layout is what a row of a table describes.
type layout uint8

// The layouts of tables.
const (
	unknownLayout  layout = iota
	rowsAreSteps          // values at a step; most cells may be empty
	rowsAreEpochs         // an epoch, which a column numbers or the order of the rows
	rowsAreRuns           // the measurements of a complete run
	rowsAreMoments        // values at a time
)

// measuredFields returns the fields of which a table must have one, unless another column
// numbers the epochs or steps.
func measuredFields() []string {
	return []string{
		fields.EpochSeconds, fields.Elapsed, fields.Time, fields.TrainingTime, fields.SamplesPerSecond, fields.TrainLoss, fields.ValLoss, fields.IoU, fields.Dice,
		fields.Accuracy, fields.ValAccuracy, fields.TrainingSeconds, fields.WallSeconds, fields.SummedSeconds, fields.StepSeconds, fields.Energy,
	}
}

// detectLayout returns the layout of the table, or unknownLayout if nothing shows what the
// rows describe.
func (s *schema) detectLayout(surveys []columnSurvey) layout {
	counters := []string{fields.Epoch, fields.Step, fields.Timestamp, fields.Elapsed, fields.Rank, fields.Seed}
	numbers := 0 // columns of numbers that are not counters
	for i := range s.columns {
		if c := &s.columns[i]; c.kind != fields.Text && c.kind != fields.Moment && !slices.Contains(counters, c.field) && (surveys[min(i, len(surveys)-1)].numbers > 0 || c.field != "" || s.kind == lightningKind) {
			numbers++
		}
	}
	mapped := slices.ContainsFunc(s.columns, func(c column) bool { return c.mapped })
	measured := s.has(measuredFields()...) || mapped && numbers > 0
	identity := s.has(fields.Workers, fields.Nodes, fields.Series, fields.Model, fields.Run, fields.Batch, fields.GlobalBatch, fields.Study)
	switch {
	case s.header == nil && !mapped:
		return unknownLayout
	case s.kind == joblogKind:
		return rowsAreRuns
	case s.kind == nvidiaKind:
		if s.has(fields.Timestamp) {
			return rowsAreMoments
		}
		return unknownLayout
	case (s.kind == mlflowTableKind || s.kind == wandbKind) && s.has(fields.Run) && !s.has(fields.MetricValue) && !s.has(fields.Timestamp):
		return rowsAreRuns
	case s.has(fields.Step) && numbers > 0:
		return rowsAreSteps
	case s.has(fields.Epoch) && (numbers > 0 || s.has(fields.Elapsed)):
		return rowsAreEpochs
	case identity && measured && (s.has(fields.Workers, fields.Nodes) || s.has(fields.EpochSeconds, fields.SamplesPerSecond, fields.Time, fields.TrainingTime, fields.WallSeconds, fields.TrainingSeconds)):
		return rowsAreRuns
	case identity && s.has(fields.Started) && s.has(fields.Ended):
		return rowsAreRuns
	case s.kind == wandbKind && s.has(fields.Timestamp, fields.Elapsed) && numbers > 0, s.has(fields.Timestamp) && measured:
		return rowsAreMoments
	case s.has(fields.TrainLoss, fields.ValLoss, fields.Accuracy, fields.ValAccuracy) || mapped && measured:
		return s.layoutWithoutCounter(surveys)
	}
	return unknownLayout
}

// layoutWithoutCounter returns the layout of a table of measured values without an epoch or step
// column: one row per epoch, or unknownLayout if a column contains text. A first column of whole
// numbers without a name, the index that pandas writes, becomes the number of the epoch.
func (s *schema) layoutWithoutCounter(surveys []columnSurvey) layout {
	for i := range s.columns {
		if c := &s.columns[i]; c.kind == fields.Text && surveys[min(i, len(surveys)-1)].texts > 0 {
			return unknownLayout
		}
	}
	if s.columns[0].name == "" && surveys[0].whole == surveys[0].numbers && !s.columns[0].mapped && s.header != nil {
		s.columns[0].field, s.columns[0].kind, s.at[fields.Epoch] = fields.Epoch, fields.Whole, 0
		s.assumed = append(s.assumed, "the column without a name is the number of the epoch")
	}
	return rowsAreEpochs
}
