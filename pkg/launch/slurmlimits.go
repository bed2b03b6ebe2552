package launch

import (
	"context"
	"fmt"

	"lockstep/pkg/launch/site"
)

// readCluster asks Slurm for the partitions and for the limits of the user's accounts. If the
// limits are unknown, Slurm itself applies them at submission, so that it is only a warning.
func (p *slurmPlan) readCluster(ctx context.Context) (*site.Cluster, error) {
	cluster, err := p.sweep.client.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.sweep.client.AddAccounts(ctx, cluster); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		p.warnings = append(p.warnings, fmt.Sprintf("warning: the limits of your account are unknown, but Slurm applies them: %v", err))
	}
	return cluster, nil
}
