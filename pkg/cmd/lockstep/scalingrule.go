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

// scalingRule returns the scaling rule of a study. The command that it suggests next
// repeats all settings of the study's runs.
func scalingRule(s *scaling.Study, measure string) (*scaling.LRScaling, error) {
	r, err := s.ScalingRule(measure)
	if err == nil {
		r.Launch = launchAgain(s.Runs[0])
	}
	return r, err
}

// launchAgain returns the start of a command that trains like the run r, without its
// batch, learning rate and seed. It is empty if the run's config is not a shipped one,
// because a run folder does not record a config's file.
func launchAgain(r runs.Run) string {
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
	for _, kv := range settings(doc, r.Info.Config, "") {
		if strings.ContainsAny(kv, " \"'[]{}*?$&;|<>()") {
			kv = "'" + strings.ReplaceAll(kv, "'", `'\''`) + "'"
		}
		command += " --set " + kv
	}
	return command
}

// settings returns the values of a config that differ from another config, as key=value,
// in alphabetical order. Values for which a sweep has flags are omitted.
func settings(was, is map[string]any, at string) []string {
	var keys, out []string
	for k := range is {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		before, known := was[k]
		if !known || slices.Contains([]string{"name", "seed", "batch", "optimizer.learning_rate", "engine.threads"}, at+k) || reflect.DeepEqual(before, is[k]) {
			continue
		}
		a, inner := before.(map[string]any)
		b, both := is[k].(map[string]any)
		if inner && both {
			out = append(out, settings(a, b, at+k+".")...)
			continue
		}
		value, err := json.Marshal(is[k])
		if err != nil {
			continue
		}
		if text, ok := is[k].(string); ok {
			var read any
			if value = []byte(text); text == "None" || yaml.Unmarshal(value, &read) != nil || read != is[k] {
				value = []byte(train.Quoted(text))
			}
		}
		out = append(out, at+k+"="+string(value))
	}
	return out
}
