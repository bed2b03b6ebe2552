package analysis

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/scaling"
)

type viewResult interface {
	Write(w io.Writer, format string) error
}

// view is an analysis that lockstep scaling --show can print.
type view struct {
	name     string
	value    string // name of the value in help texts, in capitals; empty if there is none
	example  string // example of a value
	optional bool   // whether the value may be omitted
	about    string
	// valid reports whether a value has the right form. If valid is nil, any text is valid.
	valid func(value string) bool
	// results computes the view. It writes a note to notes for each series that lacks data.
	results func(s *scaling.Study, value string, notes io.Writer) ([]viewResult, error)
}

func analysisViews() []view {
	one := func(r viewResult, err error) ([]viewResult, error) {
		if err != nil {
			return nil, err
		}
		return []viewResult{r}, nil
	}
	return []view{
		{
			name: "points", about: "the table that is shown without --show: epoch time, throughput, speed-up, efficiency, IoU",
			results: func(s *scaling.Study, _ string, _ io.Writer) ([]viewResult, error) { return one(s, nil) },
		},
		{
			name: "explain", value: "METRIC@WORKERS", example: "speedup@14",
			about: "how a number was computed: formula, runs, file and line of each input",
			valid: func(value string) bool {
				_, _, ok := parseMetricAtWorkers(value)
				return ok
			},
			results: func(s *scaling.Study, value string, _ io.Writer) ([]viewResult, error) {
				metric, workers, _ := parseMetricAtWorkers(value)
				return one(s.Explain(metric, workers))
			},
		},
		{
			name: "fit", about: "Amdahl's, Gustafson's and the universal scalability law fitted to each series, the best by AICc",
			results: func(s *scaling.Study, _ string, notes io.Writer) ([]viewResult, error) {
				return fitEachSeries(s, notes, func(series string) (viewResult, error) { return s.Fit(series) })
			},
		},
		{
			name: "collective", about: "latency and bandwidth of the all-reduce, from the step spans of 3 or more numbers of workers, or from nccl-tests or osu_allreduce",
			results: func(s *scaling.Study, _ string, notes io.Writer) ([]viewResult, error) {
				return fitEachSeries(s, notes, func(series string) (viewResult, error) { return s.Collective(series) })
			},
		},
		{
			name: "breakdown", about: "how a step's time is used, from the step spans of every rank",
			results: func(s *scaling.Study, _ string, _ io.Writer) ([]viewResult, error) { return one(s.Breakdown(), nil) },
		},
		{
			name: "time-use", about: "how a step's time is used, from step spans and traces, with intervals: data, compute, exposed and hidden communication, idle",
			results: func(s *scaling.Study, _ string, _ io.Writer) ([]viewResult, error) { return one(s.TimeUse(), nil) },
		},
		{
			name: "stragglers", about: "which rank the others wait for, and the time that this costs",
			results: func(s *scaling.Study, _ string, _ io.Writer) ([]viewResult, error) { return one(s.Stragglers(), nil) },
		},
		{
			name: "bottleneck", about: "whether input or computation limits the speed, from the trials IO, SYNTHETIC and FULL",
			results: func(s *scaling.Study, _ string, _ io.Writer) ([]viewResult, error) {
				return one(s.Bottleneck())
			},
		},
		{
			name: "overhead", value: "WITH:WITHOUT", example: "ddp:ddp-local", optional: true,
			about: "cost of communication in the series WITH, compared with the series WITHOUT it; without a value, of every pair that run.json or the names of the series show",
			valid: isSeriesPair,
			results: func(s *scaling.Study, value string, _ io.Writer) ([]viewResult, error) {
				all, err := s.Overheads(splitSeriesPairs(s, value)...)
				if err != nil {
					return nil, err
				}
				results := make([]viewResult, len(all))
				for i, o := range all {
					results[i] = o
				}
				return results, nil
			},
		},
		{
			name: "quality", about: "IoU, accuracy and loss against workers and global batch",
			results: func(s *scaling.Study, _ string, _ io.Writer) ([]viewResult, error) { return one(s.Quality(), nil) },
		},
		{
			name: "classes", about: "IoU and Dice of each class, in segmentation into several classes",
			results: func(s *scaling.Study, _ string, _ io.Writer) ([]viewResult, error) { return one(s.Classes(), nil) },
		},
		{
			name: "scaling-rule", value: "MEASURE", example: "val_loss", optional: true,
			about: "how the best learning rate grows with the global batch (none, √, linear), and up to which batch, by a measure of quality",
			results: func(s *scaling.Study, value string, _ io.Writer) ([]viewResult, error) {
				return one(s.ScalingRule(value))
			},
		},
		{
			name: "time-to", value: "METRIC=TARGET", example: "val_loss=0.0075",
			about: "when each run reached a target",
			valid: func(value string) bool {
				_, _, ok := parseMetricTarget(value)
				return ok
			},
			results: func(s *scaling.Study, value string, _ io.Writer) ([]viewResult, error) {
				metric, target, _ := parseMetricTarget(value)
				return one(s.TimeTo(metric, target))
			},
		},
		{
			name: "cost", value: "PRICE", example: "2.5", optional: true, valid: isNumber,
			about: "device-hours against time, and the Pareto front; with the price of a device-hour also the cost",
			results: func(s *scaling.Study, value string, _ io.Writer) ([]viewResult, error) {
				return one(s.Cost(parseOptionalNumber(value)))
			},
		},
		{
			name: "budget", value: budgetForm, example: "100,epochs=200,seeds=3",
			about: "how many workers the given device-hours pay for, in a project with this many epochs and seeds; without them, as many as the logs have",
			valid: func(value string) bool {
				_, _, ok := parseBudget(value)
				return ok
			},
			results: func(s *scaling.Study, value string, _ io.Writer) ([]viewResult, error) {
				hours, project, _ := parseBudget(value)
				return one(s.Budget(hours, project))
			},
		},
		{
			name: "epoch-spread", about: "how much the epoch times vary, also of single runs",
			results: func(s *scaling.Study, _ string, _ io.Writer) ([]viewResult, error) { return one(s.EpochSpreads(), nil) },
		},
		{
			name: "modes", about: "weak or strong scaling of each series, and why",
			results: func(s *scaling.Study, _ string, _ io.Writer) ([]viewResult, error) { return one(s.Modes(), nil) },
		},
	}
}

func parseMetricAtWorkers(value string) (metric string, workers int, ok bool) {
	metric, n, ok := strings.Cut(value, "@")
	workers, err := strconv.Atoi(n)
	return metric, workers, ok && err == nil && metric != ""
}

func parseMetricTarget(value string) (metric string, target float64, ok bool) {
	metric, text, ok := strings.Cut(value, "=")
	target, err := strconv.ParseFloat(text, 64)
	return metric, target, ok && err == nil && metric != ""
}

const budgetForm = "DEVICE-HOURS[,epochs=N][,seeds=N]"

func parseBudget(value string) (deviceHours float64, project scaling.Project, ok bool) {
	text, options, more := strings.Cut(value, ",")
	if !isNumber(text) {
		return 0, project, false
	}
	for more {
		var option string
		option, options, more = strings.Cut(options, ",")
		name, count, _ := strings.Cut(option, "=")
		n, err := strconv.Atoi(count)
		field := map[string]*int{"epochs": &project.Epochs, "seeds": &project.Seeds}[name]
		if err != nil || n < 1 || field == nil || *field > 0 {
			return 0, project, false
		}
		*field = n
	}
	return parseOptionalNumber(text), project, true
}

func isNumber(value string) bool {
	v, err := strconv.ParseFloat(value, 64)
	return err == nil && !math.IsNaN(v)
}

// parseOptionalNumber parses a value that isNumber has accepted. It returns 0 for "".
func parseOptionalNumber(value string) float64 {
	v, _ := strconv.ParseFloat(value, 64)
	return v
}

func isSeriesPair(value string) bool {
	with, without, ok := strings.Cut(value, ":")
	return ok && with != "" && without != ""
}

// splitSeriesPairs splits each WITH:WITHOUT at its first colon or, if series names contain colons, at one for
// which both parts are series of the study. It skips empty values.
func splitSeriesPairs(s *scaling.Study, values ...string) [][2]string {
	names := s.Series()
	var pairs [][2]string
	for _, value := range values {
		with, without, ok := strings.Cut(value, ":")
		for i, c := range value {
			if c == ':' && slices.Contains(names, value[:i]) && slices.Contains(names, value[i+1:]) {
				with, without = value[:i], value[i+1:]
				break
			}
		}
		if ok {
			pairs = append(pairs, [2]string{with, without})
		}
	}
	return pairs
}

// syntax returns what --show accepts for the view, such as fit, scaling-rule[=MEASURE] or
// budget=DEVICE-HOURS.
func (v view) syntax() string {
	switch {
	case v.value == "":
		return v.name
	case v.optional:
		return v.name + "[=" + v.value + "]"
	}
	return v.name + "=" + v.value
}

type requestedView struct {
	view
	given string
	text  string // the text of the request
}

func parseShowFlag(text string) (requestedView, error) {
	name, value, has := strings.Cut(text, "=")
	all := analysisViews()
	i := slices.IndexFunc(all, func(v view) bool { return v.name == name })
	if i < 0 {
		var names []string
		for _, v := range all {
			names = append(names, v.name)
		}
		return requestedView{}, fmt.Errorf("--show %s: unknown view %q%s; use %s; --show help explains each", text, name, nearest.Hint(name, names), strings.Join(names, ", "))
	}
	v := all[i]
	if has {
		v.optional = false // so that the form in an error has no brackets
	}
	form := "--show " + v.syntax()
	if v.example != "" {
		form += fmt.Sprintf(", such as --show %s=%s", v.name, v.example)
	}
	switch {
	case v.value == "" && has:
		return requestedView{}, fmt.Errorf("--show %s: %s takes no value; use %s", text, name, form)
	case v.value != "" && !has && !v.optional:
		return requestedView{}, fmt.Errorf("--show %s: a value is missing; use %s", text, form)
	case has && (value == "" || v.valid != nil && !v.valid(value)):
		return requestedView{}, fmt.Errorf("--show %s: invalid value %q; use %s", text, value, form)
	}
	return requestedView{v, value, text}, nil
}

// analysisFlags selects the analyses that lockstep scaling shows instead of its table.
type analysisFlags struct {
	series []string
	show   []string
	out    string
	logs   []string // the paths that are read
}

func (a *analysisFlags) addTo(c *cobra.Command) {
	fs := c.Flags()
	fs.StringArrayVar(&a.series, "series", nil, "show only this series; repeatable")
	fs.StringArrayVar(&a.show, "show", nil, "view of the runs: NAME[=VALUE], such as fit or explain=speedup@14; repeatable; --show help explains each")
	fs.StringVar(&a.out, "out", "", "folder into which each view of --show is written as a file; it is created if necessary")
	if err := c.RegisterFlagCompletionFunc("show", completeViewNames); err != nil {
		panic(err) // cannot fail: the line above defines the flag
	}
}

func completeViewNames(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	directive := cobra.ShellCompDirectiveNoFileComp
	var out []string
	for _, v := range analysisViews() {
		name := v.name
		if v.value != "" && !v.optional {
			name += "="
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		out = append(out, name+"\t"+v.about)
	}
	return append(out, "help\texplains each view"), directive
}

// requestsHelp reports whether --show asks for an explanation of the views.
func (a *analysisFlags) requestsHelp() bool { return slices.Contains(a.show, "help") }

func writeViewHelp(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, v := range analysisViews() {
		example := ""
		if v.example != "" {
			example = fmt.Sprintf(" (such as %s=%s)", v.name, v.example)
		}
		if _, err := fmt.Fprintf(tw, "%s\t%s%s\n", v.syntax(), v.about, example); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// parseViews returns the views requested by --show. It returns none if the table of the study is to
// be shown.
func (a *analysisFlags) parseViews(format string) ([]requestedView, error) {
	if a.out != "" && len(a.show) == 0 {
		return nil, cli.AsUsageError(errors.New("--out needs a view: add --show, for example --show points"))
	}
	var all []requestedView
	for _, text := range a.show {
		one, err := parseShowFlag(text)
		if err != nil {
			return nil, cli.AsUsageError(err)
		}
		if slices.ContainsFunc(all, func(s requestedView) bool { return s.text == text }) {
			return nil, cli.AsUsageError(fmt.Errorf("duplicate --show %s", text))
		}
		all = append(all, one)
	}
	if len(all) > 1 && format == scaling.FormatCSV && a.out == "" {
		return nil, cli.AsUsageError(fmt.Errorf("%d views as CSV need one file each: use --out DIR", len(all)))
	}
	return all, nil
}

// formatHasNotes reports whether output in the format ends with notes and problems.
func formatHasNotes(format string) bool {
	return format != scaling.FormatCSV && format != scaling.FormatJSON
}

func (a *analysisFlags) writeViews(c *cobra.Command, s *scaling.Study, all []requestedView, format string) error {
	parts := make([][]byte, len(all))
	for i, v := range all {
		results, err := v.results(s, v.given, c.ErrOrStderr())
		if err != nil {
			return err
		}
		if parts[i], err = joinViewResults(results, format); err != nil {
			return err
		}
		if !formatHasNotes(format) {
			writeNotesAndProblems(c.ErrOrStderr(), results[0])
		}
	}
	if a.out != "" {
		return a.writeViewFiles(c.OutOrStdout(), all, parts, format)
	}
	_, err := c.OutOrStdout().Write(joinViewOutputs(all, parts, format))
	return err
}

// joinViewResults combines the results of one view into one table, CSV file or JSON value.
func joinViewResults(results []viewResult, format string) ([]byte, error) {
	var whole bytes.Buffer
	var rows []json.RawMessage
	for i, r := range results {
		var b bytes.Buffer
		if err := r.Write(&b, format); err != nil {
			return nil, err
		}
		switch {
		case len(results) == 1:
			return b.Bytes(), nil
		case format == scaling.FormatJSON:
			var some []json.RawMessage
			if err := json.Unmarshal(b.Bytes(), &some); err != nil {
				return nil, err
			}
			rows = append(rows, some...)
		case format == scaling.FormatCSV && i > 0: // one header suffices: the columns are the same
			_, body, _ := bytes.Cut(b.Bytes(), []byte("\n"))
			whole.Write(body)
		default:
			if i > 0 {
				whole.WriteByte('\n')
			}
			whole.Write(b.Bytes())
		}
	}
	if format == scaling.FormatJSON {
		for i, row := range rows {
			whole.WriteString([]string{"[\n  ", ",\n  "}[min(i, 1)])
			whole.Write(row)
		}
		whole.WriteString("\n]\n")
	}
	return whole.Bytes(), nil
}

// uniqueViewKeys returns a unique key for each view: the view's name or, if a view is requested twice with
// different values, the text of the request.
func uniqueViewKeys(all []requestedView) []string {
	out := make([]string, len(all))
	for i, v := range all {
		out[i] = v.name
		if slices.ContainsFunc(all, func(o requestedView) bool { return o.name == v.name && o.text != v.text }) {
			out[i] = v.text
		}
	}
	return out
}

// joinViewOutputs combines several views: tables with headings, or one JSON object.
func joinViewOutputs(all []requestedView, parts [][]byte, format string) []byte {
	if len(all) == 1 {
		return parts[0]
	}
	var b bytes.Buffer
	for i, key := range uniqueViewKeys(all) {
		if format == scaling.FormatJSON {
			fmt.Fprintf(&b, "%s%q: %s", []string{"{\n", ",\n"}[min(i, 1)], key, bytes.TrimSpace(parts[i]))
			continue
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		if format == scaling.FormatLaTeX {
			key = "% " + key
		}
		fmt.Fprintf(&b, "%s:\n%s", key, parts[i])
	}
	if format == scaling.FormatJSON {
		b.WriteString("\n}\n")
	}
	return b.Bytes()
}

// writeFiles writes a file per view and prints its path. It checks all paths before it writes.
func (a *analysisFlags) writeViewFiles(names io.Writer, all []requestedView, parts [][]byte, format string) error {
	if err := os.MkdirAll(a.out, 0o755); err != nil {
		return fmt.Errorf("write views: %w", err)
	}
	ending := map[string]string{scaling.FormatTable: ".txt", scaling.FormatCSV: ".csv", scaling.FormatJSON: ".json", scaling.FormatMarkdown: ".md", scaling.FormatLaTeX: ".tex"}[format]
	var paths []string
	for _, key := range uniqueViewKeys(all) {
		path := filepath.Join(a.out, strings.Map(replaceUnsafeRune, key)+ending)
		if err := cli.CheckLogsOutput(path, a.logs); err != nil {
			return err
		}
		paths = append(paths, path)
	}
	for i, path := range paths {
		if err := wholefile.WriteBytes(path, parts[i], 0o644); err != nil {
			return fmt.Errorf("write views: %w", err)
		}
		fmt.Fprintln(names, path)
	}
	return nil
}

func replaceUnsafeRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		return r
	}
	return '-'
}

// fitEachSeries calls fit for each series and returns the results. For series that could not be fitted,
// it writes the reason to notes. If no series could be fitted, it returns the reasons as the error.
func fitEachSeries(s *scaling.Study, notes io.Writer, fit func(series string) (viewResult, error)) ([]viewResult, error) {
	var out []viewResult
	var refused []error
	for _, name := range s.Series() {
		f, err := fit(name)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		return nil, errors.Join(refused...)
	}
	for _, err := range refused {
		fmt.Fprintln(notes, "note: not fitted:", err)
	}
	return out, nil
}
