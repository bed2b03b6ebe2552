package system

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
	"lockstep/pkg/runs"
)

// Command returns the format of commands that start a training, and of lines with its workers.
func Command() logline.Format {
	return logline.Format{Name: "command", Rules: append(headerRules(), logline.Rule{First: "rusp+$mhtdaCONTHXPLKMWG", Read: readCommand})}
}

// Slurm returns the format of Slurm's messages about a job.
func Slurm() logline.Format {
	return logline.Format{Name: "Slurm", Rules: []logline.Rule{
		{Prefix: "slurmstepd: ", Read: readSlurmCancel},
	}}
}

var commandWord = regexp.MustCompile(`(?:[^\s"']|"[^"]*"|'[^']*'|["'])+`)

// readCommand reads a command that starts a training, as a shell prints it after "set -x":
//
//	srun -n 4 python train.py
//	+ python ResNet50.py --epochs 5 --batch_size 256 --n_gpus 1
//	+ OMP_NUM_THREADS=4 torchrun --nproc_per_node=2 train.py
//	+ export CUDA_VISIBLE_DEVICES=0,1
//
// It begins a new run if the current one already has values.
func readCommand(log *logline.Log, m []byte) logline.Result {
	shown := m[0] == '+' || m[0] == '$' // by the shell
	m = bytes.TrimLeft(m, "+$ ")
	if list, ok := bytes.CutPrefix(bytes.TrimPrefix(m, []byte("export ")), []byte("CUDA_VISIBLE_DEVICES=")); ok && shown && bytes.IndexByte(list, ' ') < 0 {
		return log.SetDevices(record.CountDevices(string(list)), true)
	}
	first, program, _ := bytes.Cut(m, []byte(" "))
	for launchline.PrecedesProgram(string(first)) {
		first, program, _ = bytes.Cut(program, []byte(" "))
	}
	switch string(first[bytes.LastIndexByte(first, '/')+1:]) {
	case "python", "python3", "srun", "mpirun", "mpiexec", "horovodrun", "torchrun", "accelerate", "deepspeed", "time":
	default:
		return logline.Unknown
	}
	if len(m) > 1<<14 || !bytes.Contains(m, []byte(".py ")) && !bytes.HasSuffix(m, []byte(".py")) && !bytes.Contains(m, []byte(" -m ")) && !bytes.Contains(m, []byte("osu_allreduce")) && !bytes.Contains(m, []byte("all_reduce_perf")) {
		return logline.Unknown
	}
	words := commandWord.FindAllString(string(m), -1)
	if bytes.Contains(m, []byte(" -c ")) { // the quoted value is another command
		words = strings.Fields(string(m))
	}
	_, _, isTime := cutZshTime(m) // that the command took; or a traceback or a message that begins in the same way
	if isTime || slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(w, ":") }) {
		return logline.Unknown
	}
	if log.Current.Closed || !log.Current.Epochs.IsEmpty() || len(log.Current.Trials) > 0 || len(log.Current.Curves.All) > 0 || len(log.Current.Run.AllReduces) > 0 || log.Current.TableBegun || len(log.Current.IterationRates) > 0 {
		log.BeginRun()
	}
	run := log.CountLine(logline.Command)
	if before := run.Run.Info.Command; len(before) > 0 {
		// The same command of another rank, a command that srun starts, or another program's: the
		// launcher of the program whose output follows counts.
		old, l := launchline.ParseCommand(before), launchline.ParseCommand(words)
		if a, b := batchSizeOption(before), batchSizeOption(words); a != b && l.Script == old.Script { // of another run, whose values are in another file
			log.BeginRun()
			run = log.CountLine(logline.Command)
		} else if l.Script == old.Script || l.Launcher == "" && (l.Script == "" || old.Script == "") {
			return logline.Idle
		}
		for name := range launchline.CommandSettings(before) {
			delete(run.Run.Info.Config, name)
		}
	}
	applyCommand(log, words, m)
	return logline.Used
}

func batchSizeOption(words []string) float64 {
	v, _ := record.ConfigNumber(launchline.CommandSettings(words), record.BatchSettingKeys()...)
	return v
}

func applyCommand(log *logline.Log, words []string, text []byte) {
	log.Current.Run.Info.Command = words
	log.Current.Evidence = launchline.CommandEvidence(words, fmt.Sprintf("line %d: %.100q", log.Lines.Number, text))
	for name, v := range launchline.CommandSettings(words) {
		log.AddSetting(name, v)
	}
}

// Many programs print, before their values, their workers, or their devices, which may be those of one node or
// those that they could use, and the precision and mode, in which runs that are no repeats differ:
//
//	World size: 8
//	Let's use 2 GPUs!
//	num_gpus: 2
//	Selected GPUs: 0,3
//	INFO:tensorflow:Using MirroredStrategy with devices ('/job:localhost/replica:0/task:0/device:GPU:0', …)
//	fp16 ............ True
//	AMP not enabled. Training in float32.
//	Using 16bit Automatic Mixed Precision (AMP)

// headerRules returns the rules for such lines: beginnings of lines, the first bytes that may follow after blanks,
// and a pattern of the rest with the value.
func headerRules() (rules []logline.Rule) {
	add := func(first, rest string, use func(log *logline.Log, value string) logline.Result, prefixes ...string) {
		pattern := regexp.MustCompile(rest)
		for _, prefix := range prefixes {
			rules = append(rules, logline.Rule{Prefix: prefix, Read: func(log *logline.Log, m []byte) logline.Result {
				value := scan.SkipBlanks(m[len(prefix):])
				if len(value) == 0 || strings.IndexByte(first, value[0]) < 0 {
					return logline.Unknown
				}
				if found := pattern.FindSubmatch(value); found != nil {
					return use(log, string(found[1]))
				}
				return logline.Unknown
			}})
		}
	}
	add(":=i0123456789", `^(?:(?:[:=]|is ) *)?(\d+)(?:$|[,;])`, func(log *logline.Log, value string) logline.Result {
		n, _ := strconv.Atoi(value)
		return setWorldSize(log, n, -1)
	}, "World size", "world size", "World Size", "world_size", "WORLD_SIZE", "Number of replicas", "Number of replicas in sync", "Number of devices",
		"Number of processes", "Number of ranks", "Num processes", "Horovod size", "hvd.size()")
	for _, prefix := range rankPrefixes {
		rules = append(rules, logline.Rule{Prefix: prefix, Read: readRankLine})
	}
	count := func(log *logline.Log, value string) logline.Result {
		n, _ := strconv.Atoi(value)
		return log.SetDevices(n, false)
	}
	list := func(log *logline.Log, v string) logline.Result { return log.SetDevices(record.CountDevices(v), true) }
	counts := []string{"num_gpus", "n_gpus", "gpus", "GPUs", "Total GPUs", "GPUs used", "nproc_per_node"}
	add("0123456789", `^(\d+) (?:GPUs?|GPU\(s\)|gpus|devices)(?:$|[!.,;:]| [^p])`, count, // not "per node"
		"Let's use ", "=> using ", "Using ", "using ", "Training on ", "Running on ", "Multi-GPU training with ")
	add(":=", `^[:=] *(\d+)(?:$|[,;] *\D)`, count, counts...)
	add(":=", `^[:=] *(\[?\d+(?:, ?\d+)+\]?)$`, list, append(counts, "gpu_ids", "Selected GPUs", "Using GPUs", "Using devices", "CUDA_VISIBLE_DEVICES")...)
	add("'", `(.*)`, func(log *logline.Log, value string) logline.Result {
		return log.SetDevices(strings.Count(value, "device:"), true)
	}, "INFO:tensorflow:Using MirroredStrategy with devices (")
	setting := func(key string) func(*logline.Log, string) logline.Result {
		return func(log *logline.Log, value string) logline.Result { return log.AddHeaderSetting(key, value) }
	}
	for _, key := range []string{"precision", "mixed_precision", "dtype", "fp16", "bf16", "amp", "mode", "XLA", "torch.compile"} {
		add(":=.", `^(?:[:=]|\.{3,}) *'?(?:torch\.)?([A-Za-z][\w-]{0,19})'?$`, setting(key), key)
	}
	add("tmfb", `^(?:torch\.)?(mixed precision|b?float\d+|[fb][pf]\d+)\.?$`, setting("precision"),
		"AMP not enabled. Training in", "Using native Torch AMP. Training in", "Using NVIDIA APEX AMP. Training in", "Running in")
	for _, kind := range []string{"16bit", "bfloat16"} { // of Lightning; see package trainer
		add("nA", `^.*Automatic Mixed Precision \(AMP\)()$`, func(log *logline.Log, _ string) logline.Result {
			log.AddHeaderSetting("mixed precision", "on")
			return log.AddHeaderSetting("precision", kind)
		}, "Using "+kind)
	}
	return rules
}

// readSlurmCancel reads the line that Slurm prints when it cancels a job.
//
//	slurmstepd: error: *** JOB 1234 ON node01 CANCELLED AT 2024-05-04T10:00:00 DUE TO TIME LIMIT ***
func readSlurmCancel(log *logline.Log, m []byte) logline.Result {
	if !bytes.Contains(m, []byte(" CANCELLED AT ")) {
		return logline.Unknown
	}
	run := log.CountLine(logline.Slurm)
	run.Run.Info.Status, run.Run.Info.Error = runs.StatusCanceled, "Slurm: "+strings.Trim(strings.TrimPrefix(string(m[:min(len(m), 300)]), "slurmstepd: error: "), "* ")
	if run.ResumeLine = 0; queuedAgain.Match(m) {
		run.ResumeLine = log.Lines.Number
	}
	log.In.Report.Records++
	return logline.Used
}

var queuedAgain = regexp.MustCompile("DUE TO (?:PREEMPTION|NODE FAILURE|.*REQUEUE)")

// FinishResumed counts the run as resumed if epochs precede and follow a line that states it. A job that was
// canceled before that line has continued. The epochs may be in the other output of the job.
func FinishResumed(r *logline.Run, report *record.Report) {
	n := len(r.Run.Epochs)
	if r.Resumes = r.Resumes || n == 0 && r.ResumeLine > 0 && r.Run.Info.Status == runs.StatusCanceled; n == 0 || r.Run.Epochs[0].Line > r.ResumeLine || r.Run.Epochs[n-1].Line < r.ResumeLine {
		return
	}
	report.Resumptions++
	if r.Run.Info.Status == runs.StatusCanceled {
		report.AddAssumption("line %d: the job was canceled, but the run was resumed: it does not count as canceled", r.ResumeLine)
		r.Run.Info.Status, r.Run.Info.Error = "", ""
	}
}
