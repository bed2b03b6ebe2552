package logread

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"lockstep/pkg/runs"
)

// checkIdentity checks what identifies each run: it is in the content or in the path, as its
// origin states, or it is absent.
func (c misreadChecker) checkIdentity() (wrong []string) {
	for _, r := range c.runs {
		for _, property := range runs.Properties() {
			if why := c.checkProperty(r, property); why != "" {
				wrong = append(wrong, fmt.Sprintf("%s: %s %q: %s (%s)", r.Dir, property, valueOf(r, property), why, r.Origins[property]))
			}
		}
	}
	return wrong
}

// checkModes checks that a run and one in another mode are not repeats of each other.
func (c misreadChecker) checkModes() (wrong []string) {
	repeated := func(a, b runs.Run) bool {
		failed := a.Info.Status != runs.StatusDone || b.Info.Status != runs.StatusDone
		return !failed && a.Info.Workers > 0 && a.Info.Workers == b.Info.Workers && a.Info.Series == b.Info.Series && a.Info.Study == b.Info.Study
	}
	for _, m := range c.mutants {
		for _, a := range c.runs {
			for _, b := range c.runs {
				if m.mode != nil && a.File == filepath.Join(c.dir, m.files[0].path) && b.File == filepath.Join(c.dir, m.mode.path) && repeated(a, b) {
					wrong = append(wrong, fmt.Sprintf("%s and %s are repeats of series %q with %d workers", a.Dir, b.Dir, a.Info.Series, a.Info.Workers))
				}
			}
		}
	}
	return wrong
}

// valueOf returns a property of a run as a text, or "" if it is unknown. The rank is that of the
// file, which the run does not contain.
func valueOf(r runs.Run, property runs.Property) string {
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	i := r.Info
	switch property {
	case runs.PropertyWorkers:
		return number(i.Workers)
	case runs.PropertyNodes:
		return number(i.Nodes)
	case runs.PropertySeed:
		_, known := r.Origins[property]
		if i.Seed == 0 && !known {
			return ""
		}
		return fmt.Sprint(i.Seed)
	case runs.PropertySeries:
		return i.Series
	case runs.PropertyBatch:
		if i.BatchPerWorker == 0 && i.GlobalBatch == 0 {
			return ""
		}
		return fmt.Sprint(i.BatchPerWorker, " of ", i.GlobalBatch)
	case runs.PropertyModel:
		for _, key := range []string{"model", "arch"} {
			if v, ok := i.Config[key].(string); ok {
				return v
			}
		}
	}
	return ""
}

// checkProperty returns what is wrong with a property of a run, or "".
func (c misreadChecker) checkProperty(r runs.Run, property runs.Property) string {
	value := valueOf(r, property)
	origin, known := r.Origins[property]
	switch {
	case r.Origins == nil: // run.json has it
		return c.checkStated(r, property, value)
	case !known && value != "":
		return "no origin is stated"
	case !known:
		return ""
	}
	switch origin.Source {
	case runs.SourceFolderName, runs.SourceFileName:
		return c.checkName(r, property, value, origin)
	case runs.SourceUser:
		return "the test states nothing"
	case runs.SourceContent, runs.SourceConfig, runs.SourceCommand:
		return c.checkStated(r, property, value)
	}
	return ""
}

// checkName checks a property that is in a name: the name must be in the path of a file of the
// run, and contain the value.
func (c misreadChecker) checkName(r runs.Run, property runs.Property, value string, origin runs.Origin) string {
	parts := strings.Split(origin.Detail, "*") // in place of the numbers of ranks
	var name string
	for _, f := range c.filesOf(r.Dir) {
		for _, element := range append(strings.Split(f.path, "/"), filepath.Join(filepath.Base(filepath.Dir(f.path)), filepath.Base(f.path))) {
			if strings.Contains(element, parts[0]) && strings.Contains(element, parts[len(parts)-1]) && (name == "" || len(element) < len(name)) {
				name = element
			}
		}
	}
	if name == "" {
		return "the path does not contain the name"
	}
	if len(parts) > 1 || property == runs.PropertyRank { // the highest rank is in another file of the run
		return ""
	}
	if property == runs.PropertySeries { // what separates series follows their name
		value, _, _ = strings.Cut(strings.TrimPrefix(value, "experiment "), " ")
	}
	for _, part := range wordPattern.FindAllString(value, -1) {
		if !slices.ContainsFunc(wordPattern.FindAllString(studyWords(name), -1), func(w string) bool {
			return w == part || strings.TrimLeft(w, "0") == part || strings.TrimLeft(w, "0") == "" && part == "0"
		}) {
			return fmt.Sprintf("the name %q does not contain %q", name, part)
		}
	}
	return ""
}

// studyWords returns a name with the words for which the abbreviations in the names of the
// U-Net study's files stand.
func studyWords(name string) string {
	return strings.NewReplacer("hvd", "hvd horovod", "log_", "log_ native ").Replace(name)
}

// wordPattern matches the words and the numbers of a name.
var wordPattern = regexp.MustCompile(`[0-9]+|[A-Za-z]+`)

// countedDetails are the details of numbers of workers that the ranks in a file show: fewer if
// lines are missing, and more if the lines of several runs are mixed.
func countedDetails() []string {
	return []string{"each epoch was logged that many times", "the lines have that many ranks", "event files that were written at the same time", "reported that it was done", "the ranks of "}
}

// checkStated checks a property that the content, a configuration or a command states: one of the
// samples of which the run's files consist must state it.
func (c misreadChecker) checkStated(r runs.Run, property runs.Property, value string) string {
	if value == "" {
		return ""
	}
	isText := property == runs.PropertySeries || property == runs.PropertyModel
	if property == runs.PropertySeries { // what separates series follows their name
		value, _, _ = strings.Cut(value, " ")
	}
	if isText && slices.ContainsFunc(c.mutantOf(r.Dir).files, func(f *mutatedFile) bool { return bytes.Contains(f.content, []byte(value)) }) {
		return ""
	}
	counted := property == runs.PropertyWorkers && slices.ContainsFunc(countedDetails(), func(d string) bool { return strings.Contains(r.Origins[property].Detail, d) })
	most := 0
	var others []string
	for _, s := range c.mutantOf(r.Dir).samples {
		// The list of devices, a job script and a configuration may lack a line.
		counted = counted || property == runs.PropertyWorkers && s.isOfKind([]string{"nccl-tests", "job script", "configuration"})
		for _, alone := range s.runs {
			other := valueOf(alone, property)
			if other == value {
				return ""
			}
			if property == runs.PropertyBatch && slices.ContainsFunc(numbersIn([]byte(value)), func(n float64) bool { return n > 0 && numbersIn([]byte(other)).has(n) }) {
				return ""
			}
			others = append(others, other)
			most += max(1, alone.Info.Workers)
		}
	}
	if counted && r.Info.Workers <= most {
		return ""
	}
	return fmt.Sprintf("the samples state %q", others)
}
