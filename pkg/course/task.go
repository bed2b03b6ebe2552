package course

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"go.yaml.in/yaml/v3"

	tasks "lockstep/notebooks/course"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/internal/strictyaml"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// The kinds of tasks.
const (
	KindNumbers = "numbers" // computed again from the student's runs
	KindChoice  = "choice"  // one of several options
	KindText    = "text"    // graded by hand
	KindCode    = "code"    // a function, called with inputs
)

var taskKinds = []string{KindNumbers, KindChoice, KindText, KindCode}

// Task is a task of a notebook, as a task file describes it.
type Task struct {
	ID     string   `yaml:"id"` // NOTEBOOK/NUMBER, such as server/6
	Text   string   `yaml:"text"`
	Kind   string   `yaml:"kind"`
	Points float64  `yaml:"points"`
	Hints  []string `yaml:"hints,omitempty"`

	Runs []RequiredRuns `yaml:"runs,omitempty"`
	// Foreign allows runs that the student did not train: published and recorded ones.
	Foreign bool `yaml:"foreign,omitempty"`

	Numbers   map[string]Number `yaml:"numbers,omitempty"`   // by the answer's key
	Tolerance float64           `yaml:"tolerance,omitempty"` // relative; 0 means 0.02

	Choices map[string]Choice `yaml:"choices,omitempty"` // by the answer's key

	Function *Function `yaml:"function,omitempty"`

	notebook string // the task file's name without its extension, such as 03-server
}

// RequiredRuns are runs of a config, one or more for each worker count.
type RequiredRuns struct {
	// Config is a shipped config, or a published table such as published/resnet50-booster.csv. A
	// published table need not be handed in.
	Config  string `yaml:"config,omitempty"`
	Workers []int  `yaml:"workers,omitempty"`
}

// Number describes how to recompute a number of an answer.
type Number struct {
	// Metric is a column of scaling.Study.Table, or largest_batch for the largest batch per
	// worker with which Config fits into Memory.
	Metric  string `yaml:"metric,omitempty"`
	Config  string `yaml:"config,omitempty"` // empty: the only config of the task's runs
	Series  string `yaml:"series,omitempty"` // the only series whose value is right; empty: any
	Workers int    `yaml:"workers,omitempty"`
	Memory  string `yaml:"memory,omitempty"` // such as 128MiB; only for largest_batch
}

// Choice is a question with options. The right options are given either by Answer or by Larger.
type Choice struct {
	Question string            `yaml:"question,omitempty"`
	Options  map[string]string `yaml:"options,omitempty"`
	Answer   []string          `yaml:"answer,omitempty"` // every option in it is right
	// Hashes replaces Answer in the files of a release, see hashOption.
	Hashes []string `yaml:"hashes,omitempty"`
	// Larger is a number to compare between configs. The options are the configs, and the config
	// with the largest number is right.
	Larger *Number `yaml:"larger,omitempty"`
}

// Function describes a function that the student writes.
type Function struct {
	Name  string   `yaml:"name,omitempty"`
	Cases []Case   `yaml:"cases,omitempty"`
	Needs []string `yaml:"needs,omitempty"` // grade_ids of cells that run before, such as imports or earlier answers
	// Reference is the Go source of a correct function with the same name. Grading calls both
	// functions with random Arguments. A release does not contain it.
	Reference string     `yaml:"reference,omitempty"`
	Arguments []Argument `yaml:"arguments,omitempty"`
}

// Case is a call of a function with its result.
type Case struct {
	In  []any `yaml:"in,omitempty"`
	Out any   `yaml:"out,omitempty"`
}

// Argument describes how to choose random values for an argument.
type Argument struct {
	Type string `yaml:"type,omitempty"` // int, float64, or slices of them
	// Lengths contains the length of each level of slices: a number, or a letter for a random
	// number from 2 to 6 that all arguments of a call share.
	Lengths []string `yaml:"lengths,omitempty"`
	Min     float64  `yaml:"min,omitempty"`
	Max     float64  `yaml:"max,omitempty"`
}

type taskFile struct {
	Tasks []Task `yaml:"tasks"`
}

// metricNames maps the values of Number.Metric to their names in errors.
var metricNames = map[string]string{
	"epoch_seconds": "seconds per epoch",
	"throughput":    "samples per second of all workers",
	"per_worker":    "throughput / workers",
	"speedup":       "throughput with N workers / throughput with the fewest workers (of equal work: the inverse ratio of the times)",
	"efficiency":    "speed-up / ideal speed-up, from 0 to 1",
	"val_loss":      "validation loss of the last epoch",
	"train_loss":    "training loss of the last epoch",
	"val_accuracy":  "accuracy on the validation set in the last epoch, from 0 to 1",
	"iou":           "IoU on the test set after training, from 0 to 1",
	"train_seconds": "seconds of training, all epochs",
	"wall_seconds":  "seconds of the whole job",
	largestBatch:    "largest batch per worker that fits into the memory",
}

const (
	largestBatch     = "largest_batch"
	defaultTolerance = 0.02
)

var taskIDPattern = regexp.MustCompile(`^[a-z][a-z0-9-]*/[a-z0-9-]+$`)

// GradeID returns the grade_id of the notebook cell that checks the task. For a text, it is the
// grade_id of the cell with the answer.
func (t *Task) GradeID() string { return strings.ReplaceAll(t.ID, "/", "-") }

func (t *Task) answerCellID() string {
	if t.Kind == KindText {
		return t.GradeID()
	}
	return t.GradeID() + "-answer"
}

func (t *Task) formatPoints() string {
	if t.Points == 1 {
		return "1 point"
	}
	return fmt.Sprintf("%g points", t.Points)
}

// Tasks are the tasks of a course, in the order of the notebooks.
type Tasks []*Task

// ReadTasks returns the shipped tasks. A file NN-title.yaml in dir replaces the shipped file with that
// name, or adds tasks. dir may be empty.
func ReadTasks(dir string) (Tasks, error) {
	return readTasks(dir, func(string) bool { return true })
}

// TasksBeside is like ReadTasks, but ignores a file in dir without a notebook of the same name, because a
// folder of notebooks may contain other YAML files.
func TasksBeside(dir string) (Tasks, error) {
	return readTasks(dir, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, strings.TrimSuffix(name, ".yaml")+".ipynb"))
		return err == nil
	})
}

// readTasks reads the shipped task files, and those in dir whose names isTaskFile accepts.
func readTasks(dir string, isTaskFile func(name string) bool) (Tasks, error) {
	files := map[string]fs.FS{}
	add := func(folder fs.FS) error {
		names, err := fs.Glob(folder, "*.yaml")
		for _, name := range names {
			if folder == fs.FS(tasks.Tasks) || isTaskFile(name) {
				files[name] = folder
			}
		}
		return err
	}
	if err := add(tasks.Tasks); err != nil {
		return nil, err
	}
	if dir != "" {
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("read tasks: %w", err)
		}
		if err := add(os.DirFS(dir)); err != nil {
			return nil, fmt.Errorf("read tasks %s: %w", dir, err)
		}
	}
	var all Tasks
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data, err := fs.ReadFile(files[name], name)
		if err != nil {
			return nil, fmt.Errorf("read tasks: %w", err)
		}
		read, err := parseTasks(strings.TrimSuffix(name, ".yaml"), data)
		if err != nil {
			if files[name] != fs.FS(tasks.Tasks) {
				name = filepath.Join(dir, name)
			}
			return nil, fmt.Errorf("read tasks %s: %w", name, err)
		}
		all = append(all, read...)
	}
	return all, all.checkUniqueIDs()
}

func parseTasks(notebook string, data []byte) (Tasks, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	var f taskFile
	if err := strictyaml.Decode(&doc, &f); err != nil {
		return nil, err
	}
	var all Tasks
	for i := range f.Tasks {
		t := &f.Tasks[i]
		t.notebook, t.Tolerance = notebook, cmp.Or(t.Tolerance, defaultTolerance)
		if err := t.validate(); err != nil {
			return nil, fmt.Errorf("task %s: %w", cmp.Or(t.ID, fmt.Sprint("number ", i+1)), err)
		}
		all = append(all, t)
	}
	return all, nil
}

func (all Tasks) checkUniqueIDs() error {
	file := map[string]string{}
	for _, t := range all {
		if other, ok := file[t.ID]; ok {
			return fmt.Errorf("read tasks: %s.yaml and %s.yaml both have the task %s", other, t.notebook, t.ID)
		}
		file[t.ID] = t.notebook
	}
	return nil
}

func (all Tasks) find(id string) (*Task, error) {
	var ids []string
	for _, t := range all {
		if t.ID == id {
			return t, nil
		}
		ids = append(ids, t.ID)
	}
	return nil, fmt.Errorf("unknown task %q%s", id, nearest.Hint(id, ids))
}

func (all Tasks) of(notebook string) Tasks {
	var own Tasks
	for _, t := range all {
		if t.notebook == notebook {
			own = append(own, t)
		}
	}
	return own
}

func (t *Task) validate() error {
	switch {
	case !taskIDPattern.MatchString(t.ID):
		return fmt.Errorf("invalid id %q: want NOTEBOOK/NUMBER in lower case, such as server/6", t.ID)
	case strings.TrimSpace(t.Text) == "":
		return errors.New("has no text")
	case !(t.Points >= 0):
		return fmt.Errorf("invalid points %g: use 0 or more", t.Points)
	case !(t.Tolerance > 0 && t.Tolerance <= 0.5):
		return fmt.Errorf("invalid tolerance %g: use a number between 0 and 0.5", t.Tolerance)
	case !slices.Contains(taskKinds, t.Kind):
		return fmt.Errorf("unknown kind %q%s; use %s", t.Kind, nearest.Hint(t.Kind, taskKinds), english.JoinOr(taskKinds))
	case t.Kind != KindText && len(t.Hints) == 0:
		return errors.New("has no hints: write at least one")
	}
	for _, r := range t.Runs {
		if err := r.validate(); err != nil {
			return fmt.Errorf("runs: %w", err)
		}
		if len(r.Workers) == 0 {
			return fmt.Errorf("runs of %s: no workers: list the worker counts, such as [1, 2]", r.Config)
		}
	}
	switch t.Kind {
	case KindNumbers:
		return t.validateNumbers()
	case KindChoice:
		return t.validateChoices()
	case KindCode:
		return t.validateFunction()
	}
	return nil
}

func (t *Task) validateNumbers() error {
	if len(t.Numbers) == 0 {
		return errors.New("has no numbers")
	}
	for _, key := range slices.Sorted(maps.Keys(t.Numbers)) {
		n := t.Numbers[key]
		if err := t.validateNumber(&n); err != nil {
			return fmt.Errorf("number %s: %w", key, err)
		}
		t.Numbers[key] = n
	}
	return nil
}

func (t *Task) validateChoices() error {
	if len(t.Choices) == 0 {
		return errors.New("has no choices")
	}
	for _, key := range slices.Sorted(maps.Keys(t.Choices)) {
		if err := t.validateChoice(t.Choices[key]); err != nil {
			return fmt.Errorf("choice %s: %w", key, err)
		}
	}
	return nil
}

func (r RequiredRuns) isPublished() bool { return strings.HasPrefix(r.Config, "published/") }

func (r RequiredRuns) validate() error {
	if r.isPublished() {
		_, err := runs.LocateLogs(r.Config)
		return err
	}
	_, err := train.Named(r.Config)
	return err
}

// validateNumber checks n, and sets its config if the task has only one.
func (t *Task) validateNumber(n *Number) error {
	known := slices.Sorted(maps.Keys(metricNames))
	if !slices.Contains(known, n.Metric) {
		return fmt.Errorf("unknown metric %q%s; use %s", n.Metric, nearest.Hint(n.Metric, known), english.JoinOr(known))
	}
	if n.Config == "" && len(t.Runs) == 1 {
		n.Config = t.Runs[0].Config
	}
	if n.Metric == largestBatch {
		if _, err := humanize.ParseBytes(n.Memory); err != nil {
			return fmt.Errorf("invalid memory %q: use a number with a unit, such as 128MiB", n.Memory)
		}
		if _, err := train.Named(n.Config); err != nil {
			return err
		}
		return nil
	}
	for _, r := range t.Runs {
		if r.Config == n.Config && slices.Contains(r.Workers, n.Workers) {
			return nil
		}
	}
	return fmt.Errorf("%s at %s of config %q is not in the task's runs: add it there", n.Metric, english.FormatCount(n.Workers, "worker"), n.Config)
}

func (t *Task) validateChoice(c Choice) error {
	if c.Question == "" || len(c.Options) < 2 {
		return errors.New("want a question and at least two options")
	}
	if c.Larger != nil {
		for option := range c.Options {
			n := *c.Larger
			n.Config = option
			if err := t.validateNumber(&n); err != nil {
				return fmt.Errorf("option %s: %w", option, err)
			}
		}
		return nil
	}
	if len(c.Answer) == 0 && len(c.Hashes) == 0 {
		return errors.New("has neither an answer nor larger")
	}
	for _, option := range c.Answer {
		if _, ok := c.Options[option]; !ok {
			return fmt.Errorf("answer %q is not an option", option)
		}
	}
	return nil
}

func (t *Task) validateFunction() error {
	f := t.Function
	switch {
	case f == nil || f.Name == "":
		return errors.New("has no function with a name")
	case len(f.Cases) == 0:
		return errors.New("function: has no cases")
	case f.Reference != "" && len(f.Arguments) == 0:
		return errors.New("function: the reference needs arguments")
	}
	for i, a := range f.Arguments {
		if _, err := a.elementType(); err != nil {
			return fmt.Errorf("function: argument %d: %w", i+1, err)
		}
	}
	for i, c := range f.Cases {
		if len(f.Arguments) > 0 && len(c.In) != len(f.Arguments) {
			return fmt.Errorf("function: case %d has %s, want %d", i+1, english.FormatCount(len(c.In), "argument"), len(f.Arguments))
		}
	}
	return nil
}
