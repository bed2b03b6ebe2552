package table

import "slices"

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
		fieldSeconds, fieldElapsed, fieldTime, fieldTrainingTime, fieldSamplesPerSecond, fieldTrainLoss, fieldValLoss, fieldIoU, fieldDice,
		fieldAccuracy, fieldValAccuracy, fieldTrainingSeconds, fieldWallSeconds, fieldStepSeconds, fieldEnergy,
	}
}

// detectLayout returns the layout of the table, or unknownLayout if nothing shows what the
// rows describe.
func (s *schema) detectLayout(surveys []columnSurvey) layout {
	counters := []string{fieldEpoch, fieldStep, fieldTimestamp, fieldElapsed, fieldRank, fieldSeed}
	numbers := 0 // columns of numbers that are not counters
	for i := range s.columns {
		if c := &s.columns[i]; c.kind != textValue && c.kind != momentValue && !slices.Contains(counters, c.field) && (surveys[min(i, len(surveys)-1)].numbers > 0 || c.field != "" || s.kind == lightningKind) {
			numbers++
		}
	}
	mapped := slices.ContainsFunc(s.columns, func(c column) bool { return c.mapped })
	measured := s.has(measuredFields()...) || mapped && numbers > 0
	identity := s.has(fieldWorkers, fieldNodes, fieldSeries, fieldModel, fieldRun, fieldBatch, fieldGlobalBatch, fieldStudy)
	switch {
	case s.header == nil && !mapped:
		return unknownLayout
	case s.kind == joblogKind:
		return rowsAreRuns
	case s.kind == nvidiaKind:
		if s.has(fieldTimestamp) {
			return rowsAreMoments
		}
		return unknownLayout
	case (s.kind == mlflowTableKind || s.kind == wandbKind) && s.has(fieldRun) && !s.has(fieldValue) && !s.has(fieldTimestamp):
		return rowsAreRuns
	case s.has(fieldStep) && numbers > 0:
		return rowsAreSteps
	case s.has(fieldEpoch) && (numbers > 0 || s.has(fieldElapsed)):
		return rowsAreEpochs
	case identity && measured && (s.has(fieldWorkers, fieldNodes) || s.has(fieldSeconds, fieldSamplesPerSecond, fieldTime, fieldTrainingTime, fieldWallSeconds, fieldTrainingSeconds)):
		return rowsAreRuns
	case identity && s.has(fieldStarted) && s.has(fieldEnded):
		return rowsAreRuns
	case s.kind == wandbKind && s.has(fieldTimestamp, fieldElapsed) && numbers > 0, s.has(fieldTimestamp) && measured:
		return rowsAreMoments
	case s.has(fieldTrainLoss, fieldValLoss, fieldAccuracy, fieldValAccuracy) || mapped && measured:
		return s.layoutWithoutCounter(surveys)
	}
	return unknownLayout
}

// layoutWithoutCounter returns the layout of a table of measured values without an epoch or step
// column: one row per epoch, or unknownLayout if a column contains text. A first column of whole
// numbers without a name, the index that pandas writes, becomes the number of the epoch.
func (s *schema) layoutWithoutCounter(surveys []columnSurvey) layout {
	for i := range s.columns {
		if c := &s.columns[i]; c.kind == textValue && surveys[min(i, len(surveys)-1)].texts > 0 {
			return unknownLayout
		}
	}
	if s.columns[0].name == "" && surveys[0].whole == surveys[0].numbers && !s.columns[0].mapped && s.header != nil {
		s.columns[0].field, s.columns[0].kind, s.at[fieldEpoch] = fieldEpoch, countValue, 0
		s.assumed = append(s.assumed, "the column without a name is the number of the epoch")
	}
	return rowsAreEpochs
}
