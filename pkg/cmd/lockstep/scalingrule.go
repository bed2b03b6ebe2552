package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
	"lockstep/pkg/train"
)

// computeScalingRule returns the learning-rate scaling rule of a study. The command that it
// suggests repeats all settings of the study's runs.
func computeScalingRule(s *scaling.Study, measure string) (*scaling.LRScaling, error) {
	r, err := s.ScalingRule(measure)
	if err == nil {
		r.Launch = buildRepeatCommand(s.Runs[0])
	}
	return r, err
}

// buildRepeatCommand returns the start of a command that trains like the run r, without its
// batch, learning rate and seed. A run folder does not record the path of a config file,
// so for a config that is not shipped the command contains a guess: the config's name
// with .yaml. buildRepeatCommand returns "" if the config is unknown.
func buildRepeatCommand(r runs.Run) string {
	name, _ := r.Info.Config["name"].(string)
	switch {
	case name == "":
		return ""
	case !slices.Contains(train.Names(), name):
		return "lockstep launch --config " + name + ".yaml"
	}
	cfg, err := train.Named(name)
	if err != nil {
		return ""
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return ""
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		return ""
	}
	command := "lockstep launch --config " + name
	if n := r.Info.ThreadsPerWorker; n > 1 {
		command += fmt.Sprintf(" --threads %d", n)
	}
	for _, kv := range changedSettings(train.WithStrategySettings(doc), train.WithStrategySettings(r.Info.Config), "") {
		if strings.ContainsAny(kv, " \"'[]{}*?$&;|<>()") {
			kv = "'" + strings.ReplaceAll(kv, "'", `'\''`) + "'"
		}
		command += " --set " + kv
	}
	return command
}

// changedSettings returns the settings in changed that differ from those in base, as
// key=value, in alphabetical order. It omits settings that a sweep sets by flags. prefix
// is the path of the settings inside the config, such as "optimizer.".
func changedSettings(base, changed map[string]any, prefix string) []string {
	var keys, out []string
	for k := range changed {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		before, known := base[k]
		if !known || slices.Contains([]string{"name", "seed", "batch", "optimizer.learning_rate", "engine.threads"}, prefix+k) || reflect.DeepEqual(before, changed[k]) {
			continue
		}
		a, inner := before.(map[string]any)
		b, both := changed[k].(map[string]any)
		if inner && both {
			out = append(out, changedSettings(a, b, prefix+k+".")...)
			continue
		}
		value, err := json.Marshal(changed[k])
		if err != nil {
			continue
		}
		if text, ok := changed[k].(string); ok {
			var read any
			if value = []byte(text); text == "None" || yaml.Unmarshal(value, &read) != nil || read != changed[k] {
				value = []byte(train.QuoteYAML(text))
			}
		}
		out = append(out, prefix+k+"="+string(value))
	}
	return out
}
