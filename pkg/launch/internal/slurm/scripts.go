package slurm

import (
	"context"
	"strconv"
	"strings"
)

// JobsByScript returns the waiting and running jobs and job arrays of this user, by the path of the
// submitted script. If a script was submitted several times, the newest job counts.
func (c Client) JobsByScript(ctx context.Context) (map[string]string, error) {
	text, err := c.runCommand(ctx, "squeue", "--noheader", "--me", "--Format=ArrayJobID:"+fieldSeparator+",Command:"+fieldSeparator)
	if err != nil {
		return nil, err
	}
	return parseJobsByScript(text), nil
}

func parseJobsByScript(text string) map[string]string {
	scripts := map[string]string{}
	for line := range strings.Lines(text) {
		id, path, _ := strings.Cut(strings.TrimSpace(line), fieldSeparator)
		path = strings.TrimSuffix(path, fieldSeparator)
		number, err := strconv.Atoi(id)
		known, _ := strconv.Atoi(scripts[path])
		if err == nil && number > known {
			scripts[path] = id
		}
	}
	return scripts
}
