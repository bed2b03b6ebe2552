package observe

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/runs"
)

// ConfigSectionJSON returns the section of a run's config named key, as JSON with sorted keys. It
// returns "" if the config does not have the section.
func ConfigSectionJSON(r runs.Run, key string) string {
	part, ok := r.Info.Config[key]
	if !ok {
		return ""
	}
	text, err := json.Marshal(part)
	if err != nil {
		return ""
	}
	return string(text)
}

// ConfigSectionWithout is like ConfigSectionJSON, but omits some keys of the section.
func ConfigSectionWithout(r runs.Run, key string, omit ...string) string {
	part, ok := r.Info.Config[key].(map[string]any)
	if !ok {
		return ConfigSectionJSON(r, key)
	}
	kept := maps.Clone(part)
	maps.DeleteFunc(kept, func(k string, _ any) bool { return slices.Contains(omit, k) })
	r.Info.Config = map[string]any{key: kept}
	return ConfigSectionJSON(r, key)
}

// ConfigValues returns the values of the given keys in a section of a run's config, separated by
// commas, or "" if there are none.
func ConfigValues(r runs.Run, section string, keys ...string) string {
	part, _ := r.Info.Config[section].(map[string]any)
	var values []string
	for _, k := range keys {
		if v, _ := part[k].(string); v != "" {
			values = append(values, v)
		}
	}
	return strings.Join(values, ", ")
}

// LearningRate returns the initial learning rate of a run, scaled to its workers or its global batch
// as its config requires. If the config does not state the rate, it returns the highest rate in the
// log, or 0 if the log has none.
func LearningRate(r runs.Run) float64 {
	optimizer, _ := r.Info.Config["optimizer"].(map[string]any)
	if rate, ok := optimizer["learning_rate"].(float64); ok {
		schedule, _ := r.Info.Config["schedule"].(map[string]any)
		factor := float64(r.Info.Workers)
		if base, _ := schedule["base_batch"].(float64); base > 0 {
			_, global := BatchSizes(r)
			factor = float64(global) / base
		}
		switch schedule["scaling"] {
		case "linear":
			return rate * factor
		case "sqrt":
			return rate * math.Sqrt(factor)
		}
		return rate
	}
	highest := 0.0
	for _, e := range r.Epochs {
		if IsFinite(e.LearningRate) {
			highest = max(highest, e.LearningRate)
		}
	}
	return highest
}
