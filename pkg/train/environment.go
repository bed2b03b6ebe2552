package train

import (
	"fmt"
	"strconv"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/engine"
	"lockstep/pkg/monitor"
)

// seedVariable is the environment variable with which a launcher sets a run's seed.
const seedVariable = "LOCKSTEP_SEED"

// CheckEnvironment returns an error if an environment variable that workers read has an invalid
// value, before anything starts. getenv is os.Getenv except in tests.
func CheckEnvironment(getenv func(string) string) error {
	if err := rendezvous.CheckVariables(getenv); err != nil {
		return err
	}
	if err := engine.CheckEnvironment(getenv); err != nil {
		return err
	}
	if _, err := monitor.UsageEnabled(getenv); err != nil {
		return err
	}
	_, err := readSeed(getenv, 0)
	return err
}

func readSeed(getenv func(string) string, def int64) (int64, error) {
	text := getenv(seedVariable)
	if text == "" {
		return def, nil
	}
	seed, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seed < 0 {
		return 0, fmt.Errorf("invalid %s %q: use a whole number from 0, or leave it unset", seedVariable, text)
	}
	return seed, nil
}
