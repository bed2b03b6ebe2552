package slurm

import (
	"context"
	"strconv"
	"strings"
)

// Scripts returns the waiting and running jobs and job arrays of this user, by the path of the
// submitted script. If a script was submitted several times, the newest job counts.
func (c Client) Scripts(ctx context.Context) (map[string]string, error) {
	text, err := c.run(ctx, "squeue", "--noheader", "--me", "--Format=ArrayJobID:"+separator+",Command:"+separator)
	if err != nil {
		return nil, err
	}
	return parseScripts(text), nil
}

func parseScripts(text string) map[string]string {
	scripts := map[string]string{}
	for line := range strings.Lines(text) {
		id, path, _ := strings.Cut(strings.TrimSpace(line), separator)
		path = strings.TrimSuffix(path, separator)
		number, err := strconv.Atoi(id)
		known, _ := strconv.Atoi(scripts[path])
		if err == nil && number > known {
			scripts[path] = id
		}
	}
	return scripts
}
