package table

import (
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// column is a column of a table and the destination of its values.
type column struct {
	name   string // as in the header
	field  string // empty for a metric
	kind   fields.Kind
	factor float64 // converts a number to the unit of the field
	form   numberFormat
	unit   string // after the number in the last cell that has a unit, and its factor
	scale  float64
	mapped bool   // the user has mapped the column
	run    string // run to which the values belong, if the header names it; otherwise empty
	point  bool   // in a row that is a run, the value is a metric, not a setting
	unused string // why the values are not used; empty if they are

	epoch   func(*runs.Epoch) *float64 // field of an epoch; nil if the values do not set one
	plain   bool                       // the cells are usually plain numbers
	isTime  bool                       // the values are times or rates; see dropInvalidTime
	toCurve bool
	setting bool          // the values are settings of the run
	curve   *record.Curve // of the run to which the last value belongs
	curveOf *tableRun
	changed bool           // a setting that differs between the rows of a run
	devices bool           // the cells are lists of devices, such as "0,1", or one of them
	empty   bool           // no row of the survey has a value in the column
	day     scan.DateCache // of the last date
	moment  int            // index in timeLayouts of the form of the last date that parseDateTime does not parse
}

func (c *column) isText() bool { return c.kind == fields.Text }

// epochField returns the field of an epoch that a column with the field name sets, or nil.
func epochField(name string) func(*runs.Epoch) *float64 {
	if name == fields.Time || name == fields.TrainingTime || name == fields.Elapsed { // finish computes the seconds
		name = fields.EpochSeconds
	}
	if f := fields.ByName(name); f != nil {
		return f.OfEpoch
	}
	return nil
}

// schema describes a table, as far as its header and a survey of its rows show.
type schema struct {
	preamble
	kind    string
	layout  rowLayout
	columns []column
	at      map[string]int // index of the column of each field
	mapped  []string       // mappings of the user that fit the table

	// Indexes of the columns that each row needs. keys are the columns of the run's properties; the
	// others are single columns, or -1 if the table lacks them.
	keys                                              []int
	stored                                            []int // whose values storeRow stores
	epochAt, stepAt, rankAt, timeAt, splitAt, trialAt int
	powerAt                                           int // power of a GPU
	numberAt                                          int // the first column of numbers
	hasMetric, hasTotals                              bool
	namesTraining                                     bool // the column of parts of the data set names the training's
	assumed                                           []string
	counter                                           string // the column that may number the epochs or the repeats, so that the table is not read
}

// newSchema assigns the columns of a table to fields. text is the text after the header.
func newSchema(p preamble, text []byte, mappings []ColumnMapping) *schema {
	s := &schema{preamble: p, kind: tableKind, at: map[string]int{}}
	surveys := surveyRows(p.form, p.width, text)
	header := p.header
	if header == nil { // the columns have only positions
		header = make([]string, p.width)
	}
	s.columns = make([]column, len(header))
	for i, name := range header {
		s.columns[i] = column{name: name, kind: fields.Number, factor: 1, form: numberFormat{decimal: '.'}, toCurve: true}
		if i < len(surveys) {
			s.columns[i].form = surveys[i].form
		}
	}
	for _, m := range mappings {
		if i, factor := m.findColumn(header); i >= 0 && !s.columns[i].mapped {
			s.mapColumn(i, m, factor)
			s.mapped = append(s.mapped, m.String())
		}
	}
	s.kind = detectTableKind(header)
	for i := range s.columns {
		c := &s.columns[i]
		if i < len(surveys) && !c.mapped {
			s.assignColumn(i, surveys[i])
			s.findDeviceLists(i, text)
		}
		if i < len(surveys) && c.field == "" && c.kind != fields.Text && surveys[i].texts > surveys[i].numbers {
			c.kind = fields.Text
		}
		c.empty = i < len(surveys) && surveys[i].texts+surveys[i].numbers == 0
		if i < len(surveys) && surveys[i].assumed != "" && c.kind != fields.Text && c.kind != fields.Moment && !c.devices {
			s.assumed = append(s.assumed, "column "+quoteName(c.name)+": "+surveys[i].assumed)
		}
	}
	s.splitPanelRuns()
	s.useCoresAsWorkers(text)
	s.layout = s.detectLayout(surveys)
	if s.layout == rowsAreRuns && !s.rowsAreSeparateRuns(text, surveys) && s.counter == "" {
		s.layout = unknownLayout
	}
	s.checkSplits(text)
	s.finishColumns()
	s.findColumnIndexes()
	return s
}

// useCoresAsWorkers uses a column of cores or threads as workers if the table has no other, as in measurements of
// a program on one to all cores. In a table of epochs, they must differ. Otherwise it stays a setting.
func (s *schema) useCoresAsWorkers(text []byte) {
	i, ok := s.at[fields.Cores]
	if !ok {
		return
	}
	delete(s.at, fields.Cores)
	c := &s.columns[i]
	if s.kind != tableKind || s.hasAnyField(fields.Workers, fields.Nodes, fields.WorkersPerNode, fields.Step, fields.Timestamp) || s.hasAnyField(fields.Epoch) && len(s.distinctCells(text, i)) < 2 {
		c.field, c.kind = "", fields.Number
		return
	}
	c.field, s.at[fields.Workers] = fields.Workers, i
	s.assumed = append(s.assumed, "column "+quoteName(c.name)+" is the number of workers: the table has no other")
}

// findDeviceLists makes column i the workers if it lists their devices. A number beside lists is one device.
func (s *schema) findDeviceLists(i int, text []byte) {
	c := &s.columns[i]
	isOther := func(other string) bool { return other != c.name && fields.CountsWorkers(other) }
	if !mayListDevices(c.name) || s.hasAnyField(fields.Workers) && c.field != fields.Workers || slices.ContainsFunc(s.header, isOther) {
		return
	}
	for cell := range s.distinctCells(text, i) {
		if isDeviceList(cell) {
			c.field, c.kind, c.devices, s.at[fields.Workers] = fields.Workers, fields.Whole, true, i
			s.assumed = append(s.assumed, "column "+quoteName(c.name)+" lists devices: one worker for each")
			return
		}
	}
}

// mayListDevices reports whether the name is such as gpus, devices or gpu_ids.
func mayListDevices(name string) bool {
	device, isIDs := strings.CutSuffix(fields.Normalize(name), "ids")
	return fields.CountsWorkers(name) || isIDs && fields.CountsWorkers(device+"s")
}

// isDeviceList reports whether a cell is a list of devices, such as "0,1" or [0], whose numbers have fewer than
// three digits, unlike the thousands in 1,024.
func isDeviceList(cell string) bool {
	return strings.ContainsAny(cell, ",[") && record.CountDevices(cell) > 0 && !slices.ContainsFunc(strings.Split(cell, ","), func(word string) bool { return len(strings.Trim(word, "[]'\" ")) > 2 })
}

// checkSplits makes the column of the parts of a data set an ordinary text if the rows are runs and it contains
// other words, such as inference. It sets namesTraining if a row is of the training.
func (s *schema) checkSplits(text []byte) {
	i, ok := s.at[fields.Split]
	if !ok {
		return
	}
	for cell := range s.distinctCells(text, i) {
		part, known := partOfData(cell)
		s.namesTraining = s.namesTraining || known && part == "" && cell != ""
		if !known && s.layout == rowsAreRuns && !s.columns[i].mapped {
			s.columns[i].field = ""
			delete(s.at, fields.Split)
			return
		}
	}
}

// distinctCells returns the cells of column i in text, the rows of the table.
func (s *schema) distinctCells(text []byte, i int) map[string]bool {
	found := map[string]bool{}
	for cells, ok := range s.form.rowsOf(text, s.width) {
		if ok && !found[string(cells[i].Text)] {
			found[string(cells[i].Text)] = true
		}
	}
	return found
}

// partOfData returns "val" or "test" for the name of that part of a data set, and "" for the training's.
// known is false for other names.
func partOfData(name string) (split string, known bool) {
	switch strings.ToLower(name) {
	case "", "train", "training":
		return "", true
	case "val", "valid", "validation", "eval", "dev":
		return "val", true
	case "test", "testing":
		return "test", true
	}
	return "", false
}

func (s *schema) findColumnIndexes() {
	indexOf := func(name string) int {
		if i, ok := s.at[name]; ok {
			return i
		}
		return -1
	}
	s.epochAt, s.stepAt, s.rankAt = indexOf(fields.Epoch), indexOf(fields.Step), indexOf(fields.Rank)
	s.timeAt, s.splitAt, s.trialAt = indexOf(fields.Timestamp), indexOf(fields.Split), indexOf(fields.Trial)
	if s.layout == rowsAreRuns {
		s.epochAt, s.stepAt, s.rankAt = -1, -1, -1
	}
	s.numberAt = slices.IndexFunc(s.columns, func(c column) bool { return c.kind != fields.Text && c.kind != fields.Moment })
	if s.kind != nvidiaKind { // the rows of all GPUs are one run
		for _, name := range runKeyFieldNames() {
			if i, ok := s.at[name]; ok {
				s.keys = append(s.keys, i)
			}
		}
	}
	s.powerAt = slices.IndexFunc(s.columns, func(c column) bool {
		base, _ := splitUnit(c.name)
		return s.kind == nvidiaKind && (base == "power.draw" || base == "power.draw.average" || base == "power.draw.instant")
	})
	s.hasMetric = s.hasAnyField(fields.MetricName) && s.hasAnyField(fields.MetricValue)
	s.hasTotals = s.layout == rowsAreRuns || s.hasAnyField(fields.TrainingSeconds, fields.WallSeconds, fields.Energy, fields.Samples)
}

// mapColumn assigns column i to a field as the user's mapping m states. factor is the factor of the
// unit in m, or 0 if it has none.
func (s *schema) mapColumn(i int, m ColumnMapping, factor float64) {
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
		if factor, ok := unitFactor(f.Kind, unit); ok {
			c.factor = factor
		}
		if factor != 0 {
			c.factor = factor
		}
		c.field, c.kind = f.Name, f.Kind
		s.at[f.Name] = i
		return
	}
	c.name = m.Field // a metric
}

func (s *schema) assignColumn(i int, survey columnSurvey) {
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
	f, factor := lookUpColumn(name, s.kind)
	if f == nil {
		return
	}
	numeric := f.Kind != fields.Text && f.Kind != fields.Moment
	switch {
	case numeric && survey.texts > survey.numbers:
		return // for example a column gpus with the names of the devices
	case f.Kind == fields.Whole && survey.form == numberFormat{decimal: '.'} && survey.numbers > 0 && 2*survey.whole < survey.numbers && f.Name != fields.Epoch && !(f.Name == fields.Workers && survey.numbers < 4):
		return
	case f.Name == fields.Elapsed && 2*survey.large > survey.numbers:
		f, factor = fieldNamed(fields.Timestamp), 1
	case (f.Name == fields.Run || f.Name == fields.Trial) && survey.texts == 0 && survey.numbers > 0:
		isSeed := func(name string) bool {
			seed, _ := lookUpColumn(name, s.kind)
			return seed != nil && seed.Name == fields.Seed
		}
		switch {
		case !s.hasAnyField(fields.Seed) && !slices.ContainsFunc(s.header, isSeed):
			f = fieldNamed(fields.Seed) // repeats are numbered
		case f.Name == fields.Trial:
			return
		}
	}
	if _, taken := s.at[f.Name]; taken && f.Name != fields.Setting {
		return // the first column counts, and this one is a metric
	}
	c.field, c.kind, c.factor = f.Name, f.Kind, factor
	s.at[f.Name] = i
	if f.Name == fields.Setting && survey.texts == 0 {
		c.kind = fields.Number
	} else if f.Name == fields.Setting {
		c.kind = fields.Text
	}
}

func (s *schema) hasAnyField(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, ok := s.at[name]; return ok })
}

func (s *schema) finishColumns() {
	seconds := ""
	for _, name := range []string{fields.EpochSeconds, fields.Time, fields.TrainingTime, fields.Elapsed} {
		if s.hasAnyField(name) && seconds == "" && !(s.layout == rowsAreSteps && (name == fields.Time || name == fields.Elapsed)) && !(s.layout == rowsAreRuns && name != fields.EpochSeconds) {
			seconds = name
		}
	}
	for i := range s.columns {
		c := &s.columns[i]
		c.toCurve = false
		c.isTime = slices.Contains([]string{fields.EpochSeconds, fields.Time, fields.Elapsed, fields.TrainingTime, fields.StepSeconds, fields.SamplesPerSecond, fields.ValSeconds, fields.TrainingSeconds, fields.WallSeconds}, c.field)
		switch {
		case c.unused != "":
		case i >= maxTableColumns:
			c.unused = "the table has too many columns"
		case c.name == "" && c.field == "":
			c.unused = "the column has no name"
		case slices.Contains(unmeasuredFieldNames(), c.field):
		case s.kind == joblogKind && c.field == "" && !c.mapped:
			if c.name != "Signal" { // part of the status
				c.unused = "the job's number, or bytes that GNU parallel transferred"
			}
		case c.field == fields.Setting, c.field == "" && c.isText():
			c.setting = true
		case slices.Contains([]string{fields.EpochSeconds, fields.Time, fields.TrainingTime, fields.Elapsed}, c.field):
			if c.field == seconds {
				c.epoch = epochField(c.field)
			}
			c.toCurve = s.layout != rowsAreRuns && (c.epoch == nil || s.layout == rowsAreSteps)
		default:
			c.epoch = epochField(c.field)
			c.toCurve = s.layout == rowsAreSteps || s.layout == rowsAreMoments || c.epoch == nil && (s.layout == rowsAreEpochs || c.point)
			c.setting = c.epoch == nil && !c.toCurve
		}
		c.plain = !c.devices && c.unused == "" && c.kind != fields.Text && c.kind != fields.Moment && c.form == numberFormat{decimal: '.'} && !c.empty
		if c.setting || c.toCurve || c.epoch != nil || c.field == fields.Elapsed {
			s.stored = append(s.stored, i)
		}
	}
	if (s.layout == rowsAreRuns || s.layout == rowsAreEpochs) && s.kind == tableKind && s.hasAnyField(fields.Workers, fields.Series, fields.Study) {
		s.kind = resultsTableKind
	}
}

// unmeasuredFieldNames returns the names of fields that are not measured values, or are values of the
// complete run. tableReader accesses these fields by name.
func unmeasuredFieldNames() []string {
	return []string{
		fields.Epoch, fields.Step, fields.Rank, fields.Workers, fields.Nodes, fields.WorkersPerNode, fields.Seed, fields.Batch, fields.GlobalBatch, fields.Samples,
		fields.Spread, fields.ExitCode, fields.TrainingSeconds, fields.WallSeconds, fields.SummedSeconds, fields.Energy, fields.Timestamp, fields.Study, fields.Series, fields.Model,
		fields.Run, fields.Trial, fields.Split, fields.MetricName, fields.Status, fields.Started, fields.Ended, fields.Host, fields.Command,
	}
}

// quoteName returns the name of a column in quotes, or says that it has no name.
func quoteName(name string) string {
	if name == "" {
		return "without a name"
	}
	return `"` + name + `"`
}
