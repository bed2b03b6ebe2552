package launchline

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
)

// ScriptKind is the name of the format of job scripts.
const ScriptKind = "job script"

const maxScriptBytes = 1 << 20

// Format returns the format of job scripts: shell scripts with Slurm directives or with commands of
// launchers. They state the number of workers and nodes for the logs in the same folder.
func Format() record.Format {
	return record.Format{Name: ScriptKind, Recognizes: isScript, Read: readScript, Document: true}
}

// isScript reports whether path has the extension of a job script and head is a text.
func isScript(path string, head []byte) bool {
	extensions := []string{".sh", ".bash", ".slurm", ".sbatch", ".job"}
	return slices.Contains(extensions, filepath.Ext(record.UncompressedName(path))) && len(head) > 0 && bytes.IndexByte(head, 0) < 0
}

// Script is the content of a job script.
type Script struct {
	Launches []ScriptCommand // in the order of the script
	JobName  string
	output   []string // file names of the standard output, which may contain patterns such as %j
}

// ScriptCommand is a command of a launcher in a script.
type ScriptCommand struct {
	Launch
	Number int    // line of the script, from 1
	Text   string // the command
	// Settings contains the flags with a numeric value and those that name the model.
	Settings map[string]any
	log      string // file to which the output is redirected; empty if it is not
}

func readScript(_ context.Context, in *record.Input) ([]*record.Part, error) {
	text, err := in.ReadDocument(maxScriptBytes)
	if err != nil {
		return nil, err
	}
	p := &scriptParser{variables: map[string]string{}}
	used := p.parse(string(text))
	if used == 0 {
		return nil, record.ErrUnknownFormat
	}
	r := in.Report
	r.Lines = int64(bytes.Count(text, []byte("\n")))
	r.LinesUsed = min(int64(used), r.Lines)
	r.Records = int64(len(p.script.Launches))
	if n := r.Lines - r.LinesUsed; n > 0 {
		r.AddIgnoredLines(record.IgnoredLines{Reason: "of a script, without a directive of Slurm or a command of a launcher", Lines: n, First: 1})
	}
	return []*record.Part{{Role: record.Config, Source: &p.script}}, nil
}

// scriptParser parses a job script. It knows the values of variables that Slurm or the script sets.
type scriptParser struct {
	script               Script
	variables            map[string]string
	tasks, nodes, onNode int // of the directives; 0 if not stated
}

func (p *scriptParser) parse(text string) (used int) {
	number, first, command := 0, 0, ""
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if command == "" {
			first = number
		}
		if part, more := strings.CutSuffix(line, `\`); more && !strings.HasPrefix(line, "#") {
			command += part + " "
			continue
		}
		command += line
		if p.parseCommand(first, command) {
			used += number - first + 1
		}
		command = ""
	}
	if len(p.script.Launches) == 0 && p.tasks > 1 { // the program's launcher is in another script
		p.script.Launches = []ScriptCommand{{Launch: Launch{Workers: p.tasks, Nodes: p.nodes}, Number: 1, Text: "#SBATCH --ntasks"}}
	}
	return used
}

func (p *scriptParser) parseCommand(number int, command string) bool {
	if rest, ok := strings.CutPrefix(command, "#SBATCH"); ok {
		return p.parseSlurmDirective(strings.Fields(rest))
	}
	if command == "" || command[0] == '#' {
		return false
	}
	words := strings.Fields(p.expandVariables(command))
	if len(words) == 1 && isAssignment(words[0]) || len(words) == 2 && words[0] == "export" && isAssignment(words[1]) {
		name, value, _ := strings.Cut(words[len(words)-1], "=")
		p.variables[name] = strings.Trim(value, `"'`)
		return false
	}
	l := ScriptCommand{Number: number, Text: strings.Join(words, " ")}
	l.log = redirectTarget(words)
	l.Launch, l.Settings = ParseCommand(words), CommandSettings(words)
	if l.Launcher == "" {
		return false
	}
	if l.Launcher == "srun" || l.Launcher == "mpirun" || l.Launcher == "mpiexec" { // they take what sbatch was given
		if l.Workers == 0 && !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "--nproc") }) {
			l.Workers = p.tasks
		}
		l.Nodes = cmp.Or(l.Nodes, p.nodes)
	}
	if l.Workers == 0 && l.Nodes == 0 {
		return false
	}
	p.script.Launches = append(p.script.Launches, l)
	return true
}

// redirectTarget returns the file to which a command writes its output, as in "> log" or "2>&1 |
// tee -a log", or "" if there is none.
func redirectTarget(words []string) string {
	for i, w := range words {
		switch next := words[i+1:]; {
		case w == "tee" && len(next) > 1 && next[0] == "-a":
			return next[1]
		case (w == ">" || w == "&>" || w == ">>" || w == "tee") && len(next) > 0:
			return next[0]
		case strings.HasPrefix(w, ">") && len(w) > 1 && w[1] != '&':
			return strings.TrimLeft(w, ">")
		}
	}
	return ""
}

// parseSlurmDirective parses the options of an #SBATCH line, and reports whether they are used.
func (p *scriptParser) parseSlurmDirective(words []string) bool {
	if name, ok := findOption(words, "--job-name", "-J"); ok {
		p.script.JobName = name
	}
	if output, ok := findOption(words, "--output", "-o"); ok {
		p.script.output = append(p.script.output, output)
	}
	p.nodes = max(p.nodes, intOption(words, "--nodes", "-N"))
	p.tasks = max(p.tasks, intOption(words, "--ntasks", "-n"))
	p.onNode = max(p.onNode, intOption(words, "--ntasks-per-node"))
	p.tasks = cmp.Or(p.tasks, p.onNode*max(p.nodes, 1))
	for name, n := range map[string]int{
		"SLURM_NTASKS": p.tasks, "SLURM_NPROCS": p.tasks, "SLURM_NNODES": p.nodes, "SLURM_JOB_NUM_NODES": p.nodes, "SLURM_NTASKS_PER_NODE": p.onNode,
		"SLURM_GPUS_ON_NODE": parseGPUsPerNode(words), "SLURM_GPUS_PER_NODE": parseGPUsPerNode(words),
	} {
		if n > 0 {
			p.variables[name] = strconv.Itoa(n)
		}
	}
	return len(words) > 0
}

// parseGPUsPerNode returns the GPUs per node that an option such as --gres=gpu:4 requests, or 0.
func parseGPUsPerNode(words []string) int {
	text, _ := findOption(words, "--gpus-per-node", "--gres")
	return parseCount(text[strings.LastIndexByte(text, ':')+1:])
}

var variablePattern = regexp.MustCompile(`\$\{?([A-Za-z_][A-Za-z_0-9]*)\}?`)

func (p *scriptParser) expandVariables(command string) string {
	return variablePattern.ReplaceAllStringFunc(command, func(text string) string {
		if v, ok := p.variables[strings.Trim(text, "${}")]; ok {
			return v
		}
		return text
	})
}

// MatchesLog reports whether the script says that it wrote the log: in sbatch's --output, in a
// redirection, or by its name, as job4.sh and job4-123.out.
func (s *Script) MatchesLog(script, log string) bool {
	base := filepath.Base(record.UncompressedName(log))
	if slices.ContainsFunc(s.output, func(output string) bool { return matchesOutputName(filepath.Base(output), base, s.JobName) }) ||
		slices.ContainsFunc(s.Launches, func(l ScriptCommand) bool { return l.log != "" && filepath.Base(l.log) == base }) {
		return true
	}
	stem := strings.TrimSuffix(filepath.Base(script), filepath.Ext(script))
	rest, ok := strings.CutPrefix(base, stem)
	return ok && rest != "" && strings.ContainsAny(rest[:1], "._-")
}

var outputPattern = regexp.MustCompile(`%[a-zA-Z0-9]`)

// matchesOutputName reports whether the file name base matches output, the value of sbatch's option
// --output. In output, %x is the job's name, and % before another letter stands for a number or a
// name.
func matchesOutputName(output, base, jobName string) bool {
	form := regexp.QuoteMeta(output)
	if jobName != "" {
		form = strings.ReplaceAll(form, "%x", regexp.QuoteMeta(jobName))
	}
	ok, err := regexp.MatchString("^"+outputPattern.ReplaceAllString(form, "[A-Za-z0-9_.]+")+"$", base)
	return err == nil && ok
}

// FindLaunch returns the command that started the program whose output is log. script is the name
// of the program's script, or empty if unknown. If several commands could have started it and they
// state different numbers, ok is false and l contains only the settings in which they agree.
func (s *Script) FindLaunch(log, script string) (l ScriptCommand, ok bool) {
	base := filepath.Base(record.UncompressedName(log))
	for _, choose := range []func(ScriptCommand) bool{
		func(l ScriptCommand) bool { return l.log != "" && filepath.Base(l.log) == base },
		func(l ScriptCommand) bool { return script != "" && l.Script == script },
		func(l ScriptCommand) bool { return l.log == "" && strings.Contains(l.Script, "train") },
		func(l ScriptCommand) bool { return l.log == "" && l.Script != "" },
		func(l ScriptCommand) bool { return l.log == "" },
	} {
		found := slices.DeleteFunc(slices.Clone(s.Launches), func(l ScriptCommand) bool { return !choose(l) })
		if len(found) == 0 {
			continue
		}
		l, same := found[0], true
		l.Settings = maps.Clone(l.Settings)
		for _, other := range found[1:] {
			same = same && other.Workers == l.Workers
			maps.DeleteFunc(l.Settings, func(name string, v any) bool { return other.Settings[name] != v })
		}
		return l, same
	}
	return ScriptCommand{}, false
}
