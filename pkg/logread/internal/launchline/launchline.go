// Package launchline reads the commands with which launchers such as srun, mpirun and torchrun
// start a training program, and the job scripts that contain such commands.
package launchline

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

const maxParsedCount = 1 << 18

// Launch is what a command states about the program that it starts.
type Launch struct {
	Workers  int    // number of workers; 0 if the command does not state it
	Nodes    int    // number of nodes; 0 if the command does not state it
	Script   string // base name of the program, such as train.py, or its module; empty if it is not known
	Launcher string // name of the outermost launcher; empty if the command starts the program itself
	// Kind is DeviceList or Device if an option of the program shows the number of workers.
	Kind record.EvidenceKind
}

// ParseCommand returns what a command states. It may begin with assignments to environment variables.
func ParseCommand(words []string) Launch {
	visible := "" // devices
	for len(words) > 0 && (PrecedesProgram(words[0]) || words[0] == "time") {
		if text, ok := strings.CutPrefix(words[0], "CUDA_VISIBLE_DEVICES="); ok {
			visible = text
		}
		words = words[1:]
	}
	var l Launch
	before, after := words, words // options of launchers, and those of the program
	if i := indexProgram(words); i >= 0 {
		before, after, l.Script = words[:i], words[i:], filepath.Base(words[i])
	}
	if len(words) > 0 && slices.Contains([]string{"srun", "mpirun", "mpiexec", "horovodrun", "torchrun", "accelerate", "deepspeed"}, filepath.Base(words[0])) {
		l.Launcher, after = filepath.Base(words[0]), words[len(before):]
	}
	l.Workers, l.Nodes = parseTaskCounts(before)
	if n, nodes, ok := parseProcessCounts(before); ok { // each task of srun is one agent of torchrun
		l.Workers, l.Nodes = n, max(nodes, l.Nodes)
		return l
	}
	if slices.Contains(after, "--multiprocessing-distributed") { // of PyTorch's ImageNet example, whose world size counts nodes
		l.Workers, l.Nodes = 0, cmp.Or(intOption(after, "--world-size"), l.Nodes)
		after = nil
	}
	if l.Workers > 1 {
		return l
	}
	// A program that one task starts may use several devices.
	if n := intOption(after, "--n_gpus", "--n-gpus", "--num_gpus", "--num-gpus", "--ngpus", "--num_devices", "--num-devices", "--world_size", "--world-size", "--num_processes"); n > 0 {
		l.Workers = n
	} else if n, kind, ok := parseDevices(after); ok {
		l.Workers, l.Kind = n, kind
	} else if n := record.CountDevices(visible); n > 0 && l.Workers == 0 {
		l.Workers, l.Kind = n, record.DeviceList
	}
	return l
}

// parseDevices returns the number of devices in an option such as --gpus 0,1 or --gpus 0 1. A
// single number, as in --gpus 2, may also name a device; kind tells them apart. ok is false without
// such an option.
func parseDevices(words []string) (n int, kind record.EvidenceKind, ok bool) {
	for i, w := range words {
		name, text, joined := strings.Cut(w, "=")
		if !slices.Contains([]string{"--gpus", "--gpu", "--devices", "--device", "--gpu_ids", "--gpu-ids", "--device_ids", "--device-ids"}, name) {
			continue
		}
		if !joined {
			rest := words[i+1:]
			if end := slices.IndexFunc(rest, func(w string) bool { return strings.Trim(w, "0123456789,[]'\"") != "" }); end >= 0 {
				rest = rest[:end]
			}
			text = strings.Join(rest, ",")
		}
		if n := record.CountDevices(text); n > 1 || n == 1 && strings.Contains(text, ",") || n == 1 && strings.Contains(name, "id") {
			return n, record.DeviceList, true
		}
		if n, err := strconv.Atoi(text); err == nil && n >= 0 && n <= maxParsedCount && strings.HasSuffix(name, "s") {
			return n, record.Device, true
		}
	}
	return 0, 0, false
}

// ScriptName returns the name of a command's script without .py, or "" if the
// command has no script or the name is a common one such as train.py.
func ScriptName(words []string) string {
	stem, ok := strings.CutSuffix(ParseCommand(words).Script, ".py")
	if !ok || slices.Contains([]string{"train", "main", "run", "training", "launch"}, strings.ToLower(stem)) {
		return ""
	}
	return stem
}

// CommandSettings returns the flags of a command that have a numeric value, and those that name the model.
func CommandSettings(words []string) map[string]any {
	flags := map[string]any{}
	for i, w := range words {
		name, isFlag := strings.CutPrefix(w, "--")
		if !isFlag {
			continue
		}
		name, text, joined := strings.Cut(name, "=")
		if !joined && i+1 < len(words) {
			text = words[i+1]
		}
		if !scan.IsName([]byte(name)) {
			continue
		}
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			flags[name] = v
		} else if slices.Contains(record.ModelSettingKeys(), name) && text != "" && text[0] != '-' && !strings.ContainsAny(text, "$`\"'") {
			flags[name] = text
		}
	}
	return flags
}

// CommandEvidence returns what a command states about its run. detail describes the command.
func CommandEvidence(words []string, detail string) (found []record.Evidence) {
	l := ParseCommand(words)
	origin := runs.Origin{Source: runs.SourceCommand, Detail: detail}
	if l.Workers > 0 || l.Kind != record.Stated {
		found = append(found, record.Evidence{Property: runs.PropertyWorkers, Number: int64(l.Workers), Kind: max(l.Kind, record.PerNode), Origin: origin})
	}
	if l.Nodes > 0 {
		found = append(found, record.Evidence{Property: runs.PropertyNodes, Number: int64(l.Nodes), Origin: origin})
	}
	if name := ScriptName(words); name != "" {
		found = append(found, record.Evidence{Property: runs.PropertySeries, Text: name, Origin: origin})
	}
	return found
}

// ProgramOptions returns the options of the program that a command starts, such as --lr 0.1 or lr=0.1, its other
// words by position, the environment variables that the command sets, except the devices, and the options of a
// launcher that change how the program trains. An option without a value is "true".
func ProgramOptions(words []string) map[string]string {
	found := map[string]string{}
	others := 0
	at := indexProgram(words)
	if at < 0 {
		return found
	}
	for i, w := range words[:at] {
		name, value, joined := strings.Cut(w, "=")
		if isAssignment(w) && name != "CUDA_VISIBLE_DEVICES" {
			found[name] = value
		}
		switch name = strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_"); name {
		case "mixed_precision", "dynamo_backend", "config_file":
			if found[name] = value; !joined {
				found[name] = words[i+1]
			}
		case "use_fsdp", "use_deepspeed", "autotune", "fp16_allreduce":
			found[name] = "true"
		}
	}
	words = slices.DeleteFunc(slices.Clone(words[at+1:]), func(w string) bool { return w == "" }) // as W&B may record
	for i := 0; i < len(words); i++ {
		name, value, joined := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		switch {
		case strings.ContainsAny(words[i][:1], "|>&;<") || strings.HasPrefix(words[i], "2>"): // the end of the command
			return found
		case joined:
			found[name] = value
		case words[i][0] != '-':
			others++
			found[fmt.Sprintf("word %d", others)] = words[i]
		case i+1 < len(words) && (words[i+1][0] != '-' || len(words[i+1]) > 1 && strings.ContainsRune("0123456789.", rune(words[i+1][1]))):
			i++
			found[name] = words[i]
		default:
			found[name] = "true"
		}
	}
	return found
}

func isAssignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

// PrecedesProgram reports whether a command that begins with the word continues with the program or with
// another such word: an assignment to an environment variable, or env, exec or nohup.
func PrecedesProgram(word string) bool {
	return word == "env" || word == "exec" || word == "nohup" || isAssignment(word)
}

// indexProgram returns the index of the program that a command starts, or of its module after -m, or -1.
func indexProgram(words []string) int {
	if i := slices.IndexFunc(words, isProgram); i >= 0 {
		return i
	}
	start := max(slices.IndexFunc(words, startsProgram), 0) // before it, -m may be an option of srun
	for i := start; i+1 < len(words); i++ {
		if words[i] == "-m" && !strings.HasPrefix(words[i+1], "torch.distributed.") {
			return i + 1
		}
	}
	return -1
}

func startsProgram(word string) bool {
	return slices.Contains([]string{"python", "python3", "torchrun", "accelerate", "deepspeed"}, filepath.Base(word))
}

func isProgram(word string) bool {
	return strings.HasSuffix(word, ".py") || strings.HasSuffix(word, "osu_allreduce") || strings.HasSuffix(word, "all_reduce_perf")
}

// intOption returns the first option with one of the names, or 0 if it is not a number from 1 to maxParsedCount.
func intOption(words []string, names ...string) int {
	text, _ := findOption(words, names...)
	return parseCount(text)
}

// parseCount parses a number from 1 to maxParsedCount. It returns 0 for another text.
func parseCount(text string) int {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n <= maxParsedCount {
		return n
	}
	return 0
}

// findOption returns the text of the first option with one of the names: --name=text, --name text,
// or -n8 for one-letter names.
func findOption(words []string, names ...string) (text string, ok bool) {
	for i, w := range words {
		for _, name := range names {
			if text, joined := strings.CutPrefix(w, name+"="); joined {
				return text, true
			}
			if w == name && i+1 < len(words) {
				return words[i+1], true
			}
			if text, joined := strings.CutPrefix(w, name); joined && len(name) == 2 && parseCount(text) > 0 {
				return text, true
			}
		}
	}
	return "", false
}

// parseTaskCounts returns the numbers of tasks and nodes that srun, mpirun, mpiexec or horovodrun
// starts, each 0 if the options do not state it.
func parseTaskCounts(words []string) (tasks, nodes int) {
	at := slices.IndexFunc(words, func(w string) bool {
		return slices.Contains([]string{"srun", "mpirun", "mpiexec", "horovodrun"}, filepath.Base(w))
	})
	if at < 0 {
		return 0, 0
	}
	launcher, words := filepath.Base(words[at]), words[at+1:]
	if end := slices.IndexFunc(words, startsProgram); end >= 0 {
		words = words[:end]
	}
	if launcher != "srun" {
		if hosts, ok := findOption(words, "-H", "--hosts", "--host", "-host"); ok {
			nodes = strings.Count(hosts, ",") + 1
		}
		return intOption(words, "-np", "-n", "--np", "--num-proc"), nodes
	}
	nodes = intOption(words, "--nodes", "-N")
	return cmp.Or(intOption(words, "--ntasks", "-n"), nodes*intOption(words, "--ntasks-per-node")), nodes
}

// parseProcessCounts returns how many workers and nodes a command of torchrun, accelerate or deepspeed
// starts. A number is 0 if the command contains a variable in its place. ok is false for other
// commands.
func parseProcessCounts(words []string) (workers, nodes int, ok bool) {
	has := func(name string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return filepath.Base(w) == name })
	}
	text, ok := findOption(words, "--nproc_per_node", "--nproc-per-node")
	switch {
	case ok:
	case has("accelerate"):
		text, ok = findOption(words, "--num_processes", "--num-processes")
		return parseCount(text), intOption(words, "--num_machines", "--num-machines"), ok
	case has("deepspeed"):
		text, ok = findOption(words, "--num_gpus", "--num-gpus") // on each node
	}
	nodes = 1
	if text, found := findOption(words, "--nnodes", "--num_nodes", "--num-nodes"); found {
		nodes = parseCount(text)
	}
	return parseCount(text) * nodes, nodes, ok
}
