package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"lockstep/pkg/bench"
	"lockstep/pkg/collective/hosts"
	"lockstep/pkg/figure"
)

// hostFlags contains the flags of bench allreduce for simulated hosts.
type hostFlags struct {
	options bench.HostOptions
	out     string
}

// hostFlagNames returns the flags that need --hosts.
func hostFlagNames() []string { return []string{"per-host", "rate", "delay", "loss", "out"} }

// addFlags adds the flags to c.
func (h *hostFlags) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&h.options.Hosts, "hosts", 0, "run on this number of simulated hosts, and predict the times (Linux, as root)")
	f.IntVar(&h.options.PerHost, "per-host", 1, "with --hosts: processes per host")
	f.StringVar(&h.options.Link.Rate, "rate", "", "with --hosts: bandwidth of each host, such as 100mbit (default: no limit)")
	f.DurationVar(&h.options.Link.Delay, "delay", 0, "with --hosts: delay of each packet, such as 5ms")
	f.Float64Var(&h.options.Link.LossPercent, "loss", 0, "with --hosts: percentage of packets that are lost")
	f.StringVar(&h.out, "out", "", "with --hosts: save the figure of measured and predicted times in this file")
	for _, name := range []string{"workers", "transports", "beside", "min-bytes", "max-bytes", "factor"} {
		c.MarkFlagsMutuallyExclusive("hosts", name)
	}
}

// checkUnused returns an error if a flag that needs --hosts is set without it.
func (h *hostFlags) checkUnused(c *cobra.Command) error {
	if i := slices.IndexFunc(hostFlagNames(), c.Flags().Changed); i >= 0 {
		return asUsageError(fmt.Errorf("--%s is for simulated hosts: add --hosts N", hostFlagNames()[i]))
	}
	return nil
}

// run measures all-reduces between simulated hosts. o contains the values of the flags that
// both kinds of measurement have.
func (h *hostFlags) run(c *cobra.Command, o bench.AllReduceOptions, asJSON bool) error {
	const defaultRepeats = 5
	h.options.Sizes, h.options.Algorithms, h.options.Repeats, h.options.Output = o.Sizes, o.Algorithms, defaultRepeats, o.Output
	if c.Flags().Changed("repeats") {
		h.options.Repeats = o.Repeats
	}
	if len(h.options.Sizes) == 0 {
		h.options.Sizes = bench.HostSizes()
	}
	if err := h.options.Validate(); err != nil {
		return asUsageError(err)
	}
	if err := checkOutput(h.out); err != nil {
		return err
	}
	times, err := bench.MeasureHosts(c.Context(), h.options)
	if errors.Is(err, hosts.ErrNotPermitted) || errors.Is(err, hosts.ErrNoNetem) {
		return asMissingError(err)
	}
	if err != nil {
		return err
	}
	if err := bench.WriteHosts(c.OutOrStdout(), times, asJSON); err != nil || h.out == "" {
		return err
	}
	f, err := figure.Options{}.AllReduceTimes(times)
	if err != nil {
		return err
	}
	return f.Save(h.out)
}
