package site

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/strictyaml"
)

var (
	// optionPattern matches the values of options that consist of names and numbers.
	optionPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.,:;@%+=?&|*()\[\]/-]*$`)
	// gpuFlagPattern matches Profile.GPUFlag.
	gpuFlagPattern  = regexp.MustCompile(`^--(gres=gpu:([A-Za-z0-9_.-]+:)?|gpus-per-node=([A-Za-z0-9_.-]+:)?)N$`)
	variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// errUnsafeText is the error for a value that the shell would not read as one word in a job script.
var errUnsafeText = errors.New("use letters, digits and -_.,:/ without spaces")

// findInvalidKey returns the first key of p with an invalid value, and an error that says what is
// wrong with it. Unknown is a valid value. If all values are valid, err is nil.
func (p *Profile) findInvalidKey() (key string, err error) {
	switch p.Account {
	case AccountRequired, AccountOptional, Unknown:
	default:
		return "account", fmt.Errorf("got %q, want %s, %s or %s", p.Account, AccountRequired, AccountOptional, Unknown)
	}
	switch {
	case p.GPUFlag != "" && p.GPUFlag != Unknown && !gpuFlagPattern.MatchString(p.GPUFlag):
		return "gpu_flag", fmt.Errorf("got %q, want --gres=gpu:N or --gpus-per-node=N, with N for the number of GPUs per node", p.GPUFlag)
	case p.Start == "":
		return "start", errors.New("missing: write the command that starts the tasks, such as srun, or plain if the job script starts the program itself")
	case p.DivideCores && p.CPUsPerTask != 0:
		return "divide_cores", errors.New("cpus_per_task is also given: keep divide_cores or cpus_per_task")
	case p.DivideCores && p.CoresPerNode == 0:
		return "divide_cores", errors.New("cores_per_node is missing: write the number of cores to be divided")
	}
	for i, r := range p.CPUsByGPUs {
		if r.GPUs < 1 || r.Min < 1 || r.Max < r.Min {
			return "cpus_by_gpus", fmt.Errorf("entry %d: got gpus %d, min %d, max %d: want at least 1 each, and max not below min", i+1, r.GPUs, r.Min, r.Max)
		}
	}
	for _, e := range p.Exports {
		if !variablePattern.MatchString(e) {
			return "exports", fmt.Errorf("got %q, want NAME=VALUE", e)
		}
		if strings.ContainsAny(e, "\"`\\") {
			return "exports", fmt.Errorf("got %q: use no quotes and no backslashes, because the value is written between double quotes; $NAME and $(command) are possible", e)
		}
	}
	return p.findInvalidText()
}

// findInvalidText returns the first key of p with a text that would not be one line or one word in a
// job script, and what is wrong with it.
func (p *Profile) findInvalidText() (key string, err error) {
	t := reflect.TypeFor[Profile]()
	for i := range t.NumField() {
		key := strictyaml.FieldKey(t.Field(i))
		for _, text := range collectStrings(reflect.ValueOf(*p).Field(i)) {
			if strings.ContainsFunc(text, isControlCharacter) {
				return key, fmt.Errorf("got %q: use one line without control characters", text)
			}
		}
	}
	for _, v := range []struct {
		key   string
		texts []string
	}{
		{"partitions", p.Partitions},
		{"constraint", []string{p.Constraint}},
		{"reservation", []string{p.Reservation}},
		{"modules", p.Modules},
		{"image", []string{p.Image}},
		{"output", []string{p.Output}},
		{"error", []string{p.Error}},
		{"network_interface", []string{p.NetworkInterface}},
	} {
		for _, text := range v.texts {
			if text == "" && len(v.texts) == 1 && v.key != "partitions" && v.key != "modules" || optionPattern.MatchString(text) || isValidFilePattern(v.key, text) {
				continue
			}
			return v.key, fmt.Errorf("got %q: %w", text, errUnsafeText)
		}
	}
	if strings.ContainsAny(p.Scratch, "\"`\\") {
		return "scratch", fmt.Errorf("got %q: use a path without quotes and backslashes; $NAME is possible", p.Scratch)
	}
	return "", nil
}

// isValidFilePattern reports whether text is a valid pattern for a file's name: it may begin with %.
func isValidFilePattern(key, text string) bool {
	return (key == "output" || key == "error") && optionPattern.MatchString("x"+text)
}

func isControlCharacter(c rune) bool { return c < ' ' || c == 0x7f }

func collectStrings(v reflect.Value) []string {
	switch f := v.Interface().(type) {
	case string:
		return []string{f}
	case []string:
		return f
	case List:
		return f
	case Count:
		if f == unknownCount {
			return []string{Unknown}
		}
	}
	return nil
}

// Unknown returns the keys of p that j depends on and whose values are unknown. The partition and
// the account of j itself replace those of the profile. Of the keys start and mpi_command, j
// depends only on the one that starts its tasks.
func (p *Profile) Unknown(j Job) []string {
	needless := map[string]bool{
		"description": true, "source": true,
		"partitions": j.Partition != "", "account": j.Account != "", "reservation": j.Reservation != "",
		"start": j.MPI, "mpi_command": !j.MPI, "output": j.Output != "", "error": j.Output != "",
	}
	var keys []string
	t := reflect.TypeFor[Profile]()
	for i := range t.NumField() {
		key := strictyaml.FieldKey(t.Field(i))
		if needless[key] {
			continue
		}
		for _, text := range collectStrings(reflect.ValueOf(*p).Field(i)) {
			if strings.Contains(text, Unknown) {
				keys = append(keys, key)
				break
			}
		}
	}
	return keys
}

// WithoutUnknown returns a copy of p for scripts that are only shown. In it, unknown values are
// empty, except that an unknown start command becomes srun, and an unknown GPU flag --gres=gpu:N.
func (p *Profile) WithoutUnknown() *Profile {
	known := *p
	fields := reflect.ValueOf(&known).Elem()
	for i := range fields.NumField() {
		if slices.ContainsFunc(collectStrings(fields.Field(i)), func(text string) bool { return strings.Contains(text, Unknown) }) {
			fields.Field(i).SetZero()
		}
	}
	for _, command := range []*string{&known.Start, &known.MPICommand} {
		if *command == "" {
			*command = "srun"
		}
	}
	if p.GPUFlag == Unknown {
		known.GPUFlag = "--gres=gpu:N"
	}
	known.Name = p.Name
	return &known
}

// unknownProblem returns the problem that j depends on unknown values of p, or nil.
func (p *Profile) unknownProblem(j Job) *Problem {
	keys := p.Unknown(j)
	if len(keys) == 0 {
		return nil
	}
	verb := "is"
	if len(keys) > 1 {
		verb = "are"
	}
	return &Problem{
		Field: keys[0],
		What:  fmt.Sprintf("%s %s %s in the profile of site %s", english.JoinAnd(keys), verb, Unknown, p.Name),
		Next:  "ask the site's support or read its documentation, write the answers to a copy of the profile (lockstep sites show), and give the copy's path as the site",
	}
}
