package slurm

import (
	"context"
	"strings"
)

// ExpandHostNames returns the names in a list in Slurm's notation, such as n[1-3,7]. It does not ask the
// controller.
func (c Client) ExpandHostNames(ctx context.Context, list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	text, err := c.runCommand(ctx, "scontrol", "show", "hostnames", list)
	return strings.Fields(text), err
}
