package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/launch/preflight"
)

type clusterCheck struct {
	cluster, dryRun bool
	on, node        string
	options         preflight.Options
}

func (k *clusterCheck) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&k.cluster, "cluster", false, "check what workers need of each other, on this machine or with --on")
	f.StringVar(&k.on, "on", "local", "with --cluster: local, or slurm:SITE with the name of a site profile or the path of one")
	f.IntVar(&k.options.Nodes, "nodes", 0, "Slurm: number of nodes (default: 2, or 1 if the partition has one)")
	f.StringVar(&k.options.Partition, "partition", "", "Slurm: the partition (default: the site's)")
	f.StringVar(&k.options.Account, "account", "", "Slurm: the account to charge")
	f.StringVar(&k.options.Reservation, "reservation", "", "Slurm: the reservation")
	f.DurationVar(&k.options.Time, "time", 0, "Slurm: the time limit of the job (default: 5m)")
	f.IntVar(&k.options.GPUs, "gpus", 0, "Slurm: GPUs on each node, 0 for none (default: all that the site's profile states)")
	f.BoolVar(&k.dryRun, "dry-run", false, "Slurm: show the job script, and submit nothing")
	f.StringVar(&k.node, "node", "", "examine this node as one task of a check; only job scripts use it")
	if err := f.MarkHidden("node"); err != nil {
		panic(err) // the flag exists
	}
}

// isRequested reports whether the flags request a check of a cluster. It returns an error if they
// are contradictory.
func (k *clusterCheck) isRequested(c *cobra.Command) (bool, error) {
	if k.node != "" {
		return true, nil
	}
	var given []string
	for _, name := range []string{"nodes", "partition", "account", "reservation", "time", "gpus", "dry-run"} { // need --on slurm:SITE
		if c.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	kind, site, _ := strings.Cut(k.on, ":")
	switch {
	case !k.cluster && (len(given) > 0 || c.Flags().Changed("on")):
		return false, cli.AsUsageError(errors.New("--on and its options need --cluster, which checks several nodes"))
	case kind != "local" && kind != "slurm":
		return false, cli.AsUsageError(fmt.Errorf("unknown back end %q%s: use local or slurm:SITE", k.on, nearest.Hint(kind, []string{"local", "slurm"})))
	case kind == "local" && site != "":
		return false, cli.AsUsageError(fmt.Errorf("invalid --on %q: local has no site", k.on))
	case kind == "local" && len(given) > 0:
		return false, cli.AsUsageError(fmt.Errorf("%s: only for Slurm: add --on slurm:SITE", english.JoinAnd(given)))
	case k.options.Nodes < 0 || k.options.GPUs < 0 || k.options.Time < 0:
		return false, cli.AsUsageError(errors.New("--nodes, --gpus and --time must not be negative"))
	}
	return k.cluster, nil
}

// run checks the cluster and prints the report. If k.node is set, it only checks this node, as a
// task of such a check.
func (k *clusterCheck) run(c *cobra.Command, asJSON bool) error {
	if k.node != "" {
		o, err := preflight.ParseNodeOptions(k.node)
		if err != nil {
			return cli.AsUsageError(err)
		}
		return preflight.RunNode(c.Context(), o, c.OutOrStdout())
	}
	if c.Flags().Changed("gpus") && k.options.GPUs == 0 {
		k.options.GPUs = -1 // none; 0 leaves the number to the profile
	}
	r, err := k.makeReport(c)
	switch {
	case err != nil || r == nil:
		return err
	case asJSON:
		err = json.NewEncoder(c.OutOrStdout()).Encode(r)
	default:
		_, err = fmt.Fprint(c.OutOrStdout(), r)
	}
	if n := r.Failed(); err == nil && n > 0 {
		return fmt.Errorf("found %s: the report above has the next steps", english.FormatCount(n, "problem"))
	}
	return err
}

// makeReport returns the report, or nil after a dry run.
func (k *clusterCheck) makeReport(c *cobra.Command) (*preflight.Report, error) {
	ctx := c.Context()
	kind, site, _ := strings.Cut(k.on, ":")
	if kind == "local" {
		return preflight.Local(ctx)
	}
	site = cmp.Or(site, "generic")
	if k.dryRun {
		text, err := preflight.SlurmDryRun(ctx, site, k.options)
		if err == nil {
			_, err = fmt.Fprint(c.OutOrStdout(), text)
		}
		return nil, err
	}
	k.options.Progress = c.ErrOrStderr()
	return preflight.Slurm(ctx, site, k.options)
}
