package table

import (
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
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

// The kinds of tables that are recognized by their headers.
const (
	tableKind        = "CSV table"
	lightningKind    = "Lightning metrics"
	resultsTableKind = "results table"
	ultralyticsKind  = "Ultralytics results"
	wandbKind        = "W&B export"
	mlflowTableKind  = "MLflow export"
	nvidiaKind       = "nvidia-smi"
	joblogKind       = "GNU parallel joblog"
	tensorBoardKind  = "TensorBoard export"
)

// column is a column of a table and the destination of its values.
type column struct {
	name   string // as in the header
	field  string // empty for a metric
	kind   valueKind
	factor float64 // converts a number to the unit of the field
	form   numberForm
	mapped bool   // the user has mapped the column
	run    string // run to which the values belong, if the header names it; otherwise empty
	point  bool   // in a row that is a run, the value is a metric, not a setting
	unused string // why the values are not used; empty if they are

	epoch   func(*runs.Epoch) *float64 // field of an epoch; nil if the values do not set one
	toCurve bool
	setting bool          // the values are settings of the run
	curve   *record.Curve // of the run to which the last value belongs
	curveOf *tableRun
	changed bool // a setting that differs between the rows of a run
	empty   bool // no row of the survey has a value in the column
}

// isText reports whether the values of the column are texts.
func (c *column) isText() bool { return c.kind == textValue }

// epochField returns the field of an epoch that has the name, or nil.
func epochField(name string) func(*runs.Epoch) *float64 {
	switch name {
	case fieldSeconds, fieldTime, fieldTrainingTime, fieldElapsed:
		return func(e *runs.Epoch) *float64 { return &e.Seconds }
	case fieldSamplesPerSecond:
		return func(e *runs.Epoch) *float64 { return &e.SamplesPerSecond }
	case fieldTrainLoss:
		return func(e *runs.Epoch) *float64 { return &e.TrainLoss }
	case fieldValLoss:
		return func(e *runs.Epoch) *float64 { return &e.ValLoss }
	case fieldIoU:
		return func(e *runs.Epoch) *float64 { return &e.IoU }
	case fieldDice:
		return func(e *runs.Epoch) *float64 { return &e.Dice }
	case fieldAccuracy:
		return func(e *runs.Epoch) *float64 { return &e.Accuracy }
	case fieldValAccuracy:
		return func(e *runs.Epoch) *float64 { return &e.ValAccuracy }
	case fieldLearningRate:
		return func(e *runs.Epoch) *float64 { return &e.LearningRate }
	case fieldValSeconds:
		return func(e *runs.Epoch) *float64 { return &e.ValSeconds }
	}
	return nil
}

// schema is what the header of a table and the survey of its rows show about it.
type schema struct {
	preamble
	kind    string
	layout  layout
	columns []column
	at      map[string]int // index of the column of each field
	mapped  []string       // mappings of the user that fit the table

	// Indexes of columns that each row needs: of the run's properties, and of single
	// fields, which are -1 if the table does not have them.
	keys                                              []int
	epochAt, stepAt, rankAt, timeAt, splitAt, trialAt int
	hasMetric, hasTotals                              bool
	assumed                                           []string
}

// newSchema assigns the columns of a table to fields. text is the text after the header.
func newSchema(p preamble, text []byte, mappings []Mapping) *schema {
	s := &schema{preamble: p, kind: tableKind, at: map[string]int{}}
	surveys := surveyRows(p.form, p.width, text)
	header := p.header
	if header == nil { // the columns have only positions
		header = make([]string, p.width)
	}
	s.columns = make([]column, len(header))
	for i, name := range header {
		s.columns[i] = column{name: name, kind: numberValue, factor: 1, form: numberForm{decimal: '.'}, toCurve: true}
		if i < len(surveys) {
			s.columns[i].form = surveys[i].form
		}
	}
	for _, m := range mappings {
		if i, factor := m.find(header); i >= 0 && !s.columns[i].mapped {
			s.mapColumn(i, m, factor)
			s.mapped = append(s.mapped, m.String())
		}
	}
	s.kind = detectKind(header)
	for i := range s.columns {
		c := &s.columns[i]
		if i < len(surveys) && !c.mapped {
			s.assign(i, surveys[i])
		}
		if i < len(surveys) && c.field == "" && c.kind != textValue && surveys[i].texts > surveys[i].numbers {
			c.kind = textValue
		}
		c.empty = i < len(surveys) && surveys[i].texts+surveys[i].numbers == 0
		if i < len(surveys) && surveys[i].assumed != "" && c.kind != textValue && c.kind != momentValue {
			s.assumed = append(s.assumed, "column "+quoteName(c.name)+": "+surveys[i].assumed)
		}
	}
	s.splitRuns()
	s.layout = s.detectLayout(surveys)
	if s.layout == rowsAreRuns && !s.rowsDiffer(text) {
		s.layout = unknownLayout
	}
	s.finishColumns()
	s.findIndexes()
	return s
}

// findIndexes sets the indexes of the columns that each row needs.
func (s *schema) findIndexes() {
	for _, x := range []struct {
		name string
		to   *int
	}{
		{fieldEpoch, &s.epochAt}, {fieldStep, &s.stepAt}, {fieldRank, &s.rankAt}, {fieldTimestamp, &s.timeAt}, {fieldSplit, &s.splitAt}, {fieldTrial, &s.trialAt},
	} {
		*x.to = -1
		if i, ok := s.at[x.name]; ok {
			*x.to = i
		}
	}
	if s.kind != nvidiaKind { // the rows of all GPUs are one run
		for _, name := range keyFields() {
			if i, ok := s.at[name]; ok {
				s.keys = append(s.keys, i)
			}
		}
	}
	s.hasMetric = s.has(fieldMetric)
	s.hasTotals = s.layout == rowsAreRuns || s.kind == nvidiaKind || s.has(fieldTrainingSeconds, fieldWallSeconds, fieldEnergy, fieldSamples)
}

// mapColumn assigns a column as the user has mapped it. factor is that of the unit in the
// mapping, or 0.
func (s *schema) mapColumn(i int, m Mapping, factor float64) {
	c := &s.columns[i]
	c.mapped = true
	if s.header == nil {
		c.name = m.Field
	}
	if f := fieldNamed(m.Field); f != nil {
		_, unit := splitUnit(c.name)
		if i := strings.LastIndexAny(c.name, "_ -."); unit == "" && i > 0 { // such as time_ms
			unit = c.name[i+1:]
		}
		if factor, ok := unitFactor(f.kind, unit); ok {
			c.factor = factor
		}
		if factor != 0 {
			c.factor = factor
		}
		c.field, c.kind = f.name, f.kind
		s.at[f.name] = i
		return
	}
	c.name = m.Field // a metric
}

// assign assigns a column by its name.
func (s *schema) assign(i int, survey columnSurvey) {
	c := &s.columns[i]
	name := c.name
	if s.kind == mlflowTableKind {
		for _, prefix := range []string{"metrics.", "params.", "tags."} {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				name, c.point = rest, prefix == "metrics."
				if c.point {
					c.name = name
				}
			}
		}
	}
	f, factor := lookUp(name, s.kind)
	if f == nil {
		return
	}
	numeric := f.kind != textValue && f.kind != momentValue
	switch {
	case numeric && survey.texts > survey.numbers:
		return // for example a column gpus with the names of the devices
	case f.kind == countValue && survey.form == numberForm{decimal: '.'} && survey.numbers > 0 && 2*survey.whole < survey.numbers && f.name != fieldEpoch && !(f.name == fieldWorkers && survey.numbers < 4):
		return
	case f.name == fieldElapsed && 2*survey.large > survey.numbers:
		f, factor = fieldNamed(fieldTimestamp), 1
	case f.name == fieldRun && !s.has(fieldSeed) && survey.texts == 0 && survey.numbers > 0:
		f = fieldNamed(fieldSeed) // repeats are numbered
	}
	if _, taken := s.at[f.name]; taken && f.name != fieldSetting {
		return // the first column counts, and this one is a metric
	}
	c.field, c.kind, c.factor = f.name, f.kind, factor
	s.at[f.name] = i
	if f.name == fieldSetting && survey.texts == 0 {
		c.kind = numberValue
	} else if f.name == fieldSetting {
		c.kind = textValue
	}
}

// lookUp returns the field of a column's name in a table of the given kind, and the factor of
// the unit in the name. The field is nil if the name is not known.
func lookUp(name, kind string) (f *field, factor float64) {
	base, unit := splitUnit(name)
	key := normalizeName(base)
	if f, known := lookUpWithBrackets(key, normalizeName(unit)); known {
		return f, 1
	}
	switch kind {
	case nvidiaKind:
		switch key {
		case "index":
			return fieldNamed(fieldRank), 1
		case "name", "gpuname":
			return fieldNamed(fieldModel), 1
		case "timestamp":
			return fieldNamed(fieldTimestamp), 1
		}
		return nil, 1
	case tensorBoardKind:
		if key == "walltime" {
			return fieldNamed(fieldTimestamp), 1
		}
	case wandbKind, mlflowTableKind:
		if key == "name" {
			return fieldNamed(fieldRun), 1
		}
	}
	f = synonyms()[key]
	if f == nil {
		f = lookUpCount(key)
	}
	if f == nil && strings.HasSuffix(key, "epoch") { // as Lightning names the mean over an epoch
		f = synonyms()[strings.TrimSuffix(key, "epoch")]
		if f != nil && epochField(f.name) == nil {
			f = nil
		}
	}
	if f == nil && unit == "" { // such as epoch_time_ms
		if i := strings.LastIndexAny(base, "_ -."); i > 0 {
			f, unit = synonyms()[normalizeName(base[:i])], base[i+1:]
			if f != nil {
				if _, ok := unitFactor(f.kind, unit); !ok {
					f = nil
				}
			}
		}
	}
	if f == nil {
		return nil, 1
	}
	if factor, ok := unitFactor(f.kind, unit); ok {
		return f, factor
	}
	return f, 1
}

// lookUpWithBrackets returns the field of a name such as "loss (val)", whose brackets contain
// a part of the data set or of the meaning, not a unit. known is false if they do not. The
// field is nil if the name has none.
func lookUpWithBrackets(key, inBrackets string) (f *field, known bool) {
	if inBrackets == "" || synonyms()[key] == nil {
		return nil, false
	}
	for _, name := range []string{key + inBrackets, inBrackets + key} {
		if f := synonyms()[name]; f != nil {
			return f, true
		}
	}
	switch inBrackets {
	case "test", "testing", "val", "valid", "validation", "eval", "dev":
		return nil, true
	}
	return nil, false
}

// lookUpCount returns the field of the normalized name of a counter, such as epochno, or of a
// number of workers, such as noofgpus. It returns nil if the name is neither.
func lookUpCount(key string) *field {
	for _, end := range []string{"no", "nr", "num", "number", "index", "idx", "id"} {
		if base, ok := strings.CutSuffix(key, end); ok {
			if f := synonyms()[base]; f != nil && slices.Contains([]string{fieldEpoch, fieldStep, fieldRank, fieldSeed, fieldRun}, f.name) {
				return f
			}
		}
	}
	for _, start := range []string{"noof", "nrof", "numof", "numberof", "countof"} {
		if base, ok := strings.CutPrefix(key, start); ok {
			if f := synonyms()[base]; f != nil && slices.Contains([]string{fieldWorkers, fieldNodes, fieldWorkersPerNode, fieldSamples}, f.name) {
				return f
			}
		}
	}
	return nil
}

// splitUnit splits a unit in brackets from the end of a column's name. unit is empty if the
// name has none.
func splitUnit(name string) (base, unit string) {
	name = strings.TrimSpace(name)
	for _, brackets := range []string{"()", "[]"} {
		i := strings.LastIndexByte(name, brackets[0])
		if i > 0 && name[len(name)-1] == brackets[1] {
			return strings.TrimSpace(name[:i]), strings.TrimSpace(name[i+1 : len(name)-1])
		}
	}
	return name, ""
}

// detectKind returns the kind of a table with the given header.
func detectKind(header []string) string {
	has := func(names ...string) bool {
		for _, name := range names {
			if !slices.Contains(header, name) {
				return false
			}
		}
		return true
	}
	begins := func(prefixes ...string) bool {
		return slices.ContainsFunc(header, func(name string) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		})
	}
	switch {
	case has("epoch", "step") && len(header) > 2:
		return lightningKind
	case has("Seq", "JobRuntime", "Command"):
		return joblogKind
	case begins("utilization.gpu", "power.draw", "memory.used", "temperature.gpu", "clocks.", "memory.total", "pci.bus_id"):
		return nvidiaKind
	case has("Wall time", "Step", "Value"):
		return tensorBoardKind
	case has("epoch") && (begins("train/box_loss", "metrics/mAP", "metrics/accuracy_top1", "x/lr") || has("train/loss") && begins("lr/pg")):
		return ultralyticsKind
	case has("_step", "_timestamp"), has("_step", "_runtime"), has("Name", "State"), isPanelExport(header):
		return wandbKind
	case has("run_id", "key", "value"), has("run_id", "experiment_id"), has("Run ID", "Start Time"):
		return mlflowTableKind
	}
	return tableKind
}

// isPanelExport reports whether the columns after the first are values of different runs, as
// in the data of a panel of W&B: "Step","run - loss","run - loss__MIN","run - loss__MAX".
func isPanelExport(header []string) bool {
	if len(header) < 2 || !slices.Contains([]string{"Step", "epoch", "Relative Time (Process)", "Relative Time (Wall)", "_timestamp", "_step", "trainer/global_step", "global_step"}, header[0]) {
		return false
	}
	for _, name := range header[1:] {
		if !strings.Contains(name, " - ") {
			return false
		}
	}
	return true
}

// splitRuns splits the names of the columns of a panel's data into the run and the metric.
func (s *schema) splitRuns() {
	if !isPanelExport(s.header) {
		return
	}
	for i := 1; i < len(s.columns); i++ {
		c := &s.columns[i]
		if c.mapped {
			continue
		}
		at := strings.LastIndex(c.name, " - ")
		run, metric := c.name[:at], c.name[at+3:]
		c.run = run
		for _, end := range []string{"__MIN", "__MAX"} {
			if strings.HasSuffix(metric, end) {
				c.unused = "the minimum or maximum of another column"
			}
		}
		c.name, c.field, c.kind = metric, "", numberValue
	}
}

// has reports whether one of the fields has a column.
func (s *schema) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, ok := s.at[name]; return ok })
}

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
	case s.kind == wandbKind && s.has(fieldTimestamp, fieldElapsed) && numbers > 0, s.has(fieldTimestamp) && measured:
		return rowsAreMoments
	case s.has(fieldTrainLoss, fieldValLoss, fieldAccuracy, fieldValAccuracy) || mapped && measured:
		return s.layoutWithoutCounter(surveys)
	}
	return unknownLayout
}

// layoutWithoutCounter returns the layout of a table of losses whose rows are not numbered. An
// index column, which pandas writes without a name, numbers the epochs.
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

// finishColumns decides where the values of each column go.
func (s *schema) finishColumns() {
	seconds := ""
	for _, name := range []string{fieldSeconds, fieldTime, fieldTrainingTime, fieldElapsed} {
		if s.has(name) && seconds == "" && !(s.layout == rowsAreSteps && (name == fieldTime || name == fieldElapsed)) && !(s.layout == rowsAreRuns && name != fieldSeconds) {
			seconds = name
		}
	}
	for i := range s.columns {
		c := &s.columns[i]
		c.toCurve = false
		switch {
		case c.unused != "":
		case i >= maxColumns:
			c.unused = "the table has too many columns"
		case c.name == "" && c.field == "":
			c.unused = "the column has no name"
		case slices.Contains(propertyFields(), c.field):
		case s.kind == joblogKind && c.field == "" && !c.mapped:
			if c.name != "Signal" { // part of the status
				c.unused = "the job's number, or bytes that GNU parallel transferred"
			}
		case c.field == fieldSetting, c.field == "" && c.isText():
			c.setting = true
		case slices.Contains([]string{fieldSeconds, fieldTime, fieldTrainingTime, fieldElapsed}, c.field):
			if c.field == seconds {
				c.epoch = epochField(c.field)
			}
			c.toCurve = s.layout != rowsAreRuns && (c.epoch == nil || s.layout == rowsAreSteps)
		default:
			c.epoch = epochField(c.field)
			c.toCurve = s.layout == rowsAreSteps || s.layout == rowsAreMoments || c.epoch == nil && (s.layout == rowsAreEpochs || c.point)
			c.setting = c.epoch == nil && !c.toCurve
		}
	}
	if s.layout == rowsAreRuns || s.layout == rowsAreEpochs {
		if s.kind == tableKind && s.has(fieldWorkers, fieldSeries, fieldStudy) {
			s.kind = resultsTableKind
		}
	}
}

// propertyFields returns the fields that are no measurement, or one of the complete run.
// tableReader uses them by their names.
func propertyFields() []string {
	return []string{
		fieldEpoch, fieldStep, fieldRank, fieldWorkers, fieldNodes, fieldWorkersPerNode, fieldSeed, fieldBatch, fieldGlobalBatch, fieldSamples,
		fieldSpread, fieldExitCode, fieldTrainingSeconds, fieldWallSeconds, fieldEnergy, fieldTimestamp, fieldStudy, fieldSeries, fieldModel,
		fieldRun, fieldTrial, fieldSplit, fieldMetric, fieldStatus, fieldStarted, fieldEnded, fieldHost, fieldCommand,
	}
}

// quoteName returns a column's name in quotes, or its absence in words.
func quoteName(name string) string {
	if name == "" {
		return "without a name"
	}
	return `"` + name + `"`
}
