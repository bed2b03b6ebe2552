package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lockstep/pkg/bench"
	"lockstep/pkg/bench/gpu"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/selftest"
	"lockstep/pkg/internal/buildid"
)

func gpuCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "gpu",
		Short: "Prove and measure the GPU engine on this machine",
		Long: `Checks and measures the engine on this machine's GPU. Where none can be used the
exit code is 3, and the message says where its libraries were looked for; lockstep
doctor lists them. environment/gpu-check runs all of it and keeps what came out.`,
	}
	c.AddCommand(gpuVersionsCommand(), gpuFirstCommand(), gpuSelfTestCommand(), gpuPlanCommand(), gpuBenchCommand(), gpuPeersCommand(), gpuCurvesCommand())
	return c
}

// noGPU returns an error with the exit code for a missing dependency if this machine has
// no usable GPU.
func noGPU() error {
	m := engine.Devices()
	if m.NoGPU == "" {
		return nil
	}
	looked := ""
	if len(m.Looked) > 0 {
		looked = "; looked in " + strings.Join(m.Looked, "; ")
	}
	return missing(fmt.Errorf("no GPU can be used: %s%s", m.NoGPU, looked))
}

func gpuVersionsCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "versions",
		Short: "GPUs, driver and libraries, with versions and files",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			m := engine.Devices()
			if asJSON {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				if err := e.Encode(m); err != nil {
					return err
				}
			} else if _, err := fmt.Fprint(c.OutOrStdout(), m); err != nil {
				return err
			}
			return noGPU()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func gpuFirstCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "first",
		Short: "What is needed most of a machine with a GPU, in some minutes (JSON)",
		Long: `Writes, as JSON, versions and files of the libraries, the properties of the GPU from
which cuDNN compiles for it on a machine without one, and how whole steps of small
U-Nets in bf16 compare with the reference. The exit code is 1 when these differ.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := noGPU(); err != nil {
				return err
			}
			first, err := selftest.First(c.Context())
			e := json.NewEncoder(c.OutOrStdout())
			e.SetIndent("", " ")
			writeErr := e.Encode(struct {
				Build   string          `json:"build"`
				Machine *engine.Machine `json:"machine"`
				selftest.FirstReport
			}{buildid.ID, engine.Devices(), first})
			return errors.Join(err, writeErr)
		},
	}
}

// selfTestResult is the JSON output of the self-test.
type selfTestResult struct {
	Build   string           `json:"build"`
	Device  string           `json:"device"`
	Seed    uint64           `json:"seed"`
	Seconds float64          `json:"seconds"`
	Failed  int              `json:"failed"`
	Checks  []selftest.Check `json:"checks"`
}

func gpuSelfTestCommand() *cobra.Command {
	var o selftest.Options
	var asJSON, small bool
	c := &cobra.Command{
		Use:   "selftest",
		Short: "Compare every kernel and plan with the reference",
		Long: `Runs every kernel, every plan that cuDNN offers for a set of convolutions, and
whole steps of U-Nets, recorded and not, on new random data in memory that was
filled with NaN, and compares with the reference engine in float64. Each line of
the table is a check: its worst error, relative to the greatest value, and what
that may be. The exit code is 1 when a check fails.

  lockstep gpu selftest
  lockstep gpu selftest --precision bf16 --only conv --seed 7`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			if err := noGPU(); err != nil {
				return err
			}
			o.Large = !small
			if o.Seed == 0 {
				o.Seed = rand.Uint64N(math.MaxInt64) + 1
			}
			o.Report = func(k selftest.Check) {
				if !k.OK {
					fmt.Fprintf(c.ErrOrStderr(), "FAILED %s, %s, %s: %.3g, may be %.3g; %s\n", k.Name, k.Type, k.Shape, k.Error, k.Bound, k.Detail)
				}
			}
			begin := time.Now()
			checks, err := selftest.Run(c.Context(), o)
			r := selfTestResult{
				Build: buildid.ID, Device: deviceName(), Seed: o.Seed, Seconds: time.Since(begin).Seconds(),
				Failed: selftest.Failed(checks), Checks: checks,
			}
			if writeErr := r.write(c.OutOrStdout(), asJSON); writeErr != nil {
				return writeErr
			}
			if err == nil && r.Failed > 0 {
				err = fmt.Errorf("self-test: %d of %d checks failed (--seed %d runs the same again)", r.Failed, len(checks), o.Seed)
			}
			return err
		},
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "as JSON")
	f.StringVar(&o.Device, "device", "cuda", "cuda, or cuda:1 for the second GPU")
	f.StringSliceVar(&o.Precisions, "precision", nil, "of "+strings.Join(selftest.Precisions(), ", ")+" (default: all)")
	f.StringVar(&o.Only, "only", "", "checks whose name has this in it")
	f.Uint64Var(&o.Seed, "seed", 0, "of the data; 0: another one each time")
	f.BoolVar(&small, "small", false, "leave the shapes of real networks out")
	return c
}

// deviceName returns the name of the first GPU.
func deviceName() string {
	for _, d := range engine.Devices().Devices {
		if d.Kind == "cuda" {
			return d.Name
		}
	}
	return ""
}

func (r selfTestResult) write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "check\ttype\tshape\tworst error\tbound\tverdict\t")
	for _, k := range r.Checks {
		verdict := "ok"
		if !k.OK {
			verdict = "FAILED"
		}
		detail := k.Detail
		if detail == "" {
			detail = strings.Join(k.Kernels, " ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2e\t%.2e\t%s\t%s\n", k.Name, k.Type, k.Shape, k.Error, k.Bound, verdict, detail)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s, seed %d: %d checks, %d failed, %.0f s\n", r.Device, r.Seed, len(r.Checks), r.Failed, r.Seconds)
	return err
}

func gpuFlags(f *pflag.FlagSet, o *gpu.Options, out *benchOutput) {
	f.StringVar(&o.Model, "model", "unet-512", "one of "+strings.Join(gpu.Models(), ", "))
	f.StringVar(&o.Precision, "precision", "bf16", "bf16, fp16 or fp32")
	f.BoolVar(&o.TF32, "tf32", false, "with --precision fp32: convolutions may round their inputs")
	f.StringVar(&o.Device, "device", "cuda", "cuda, or cuda:1 for the second GPU")
	f.IntVar(&o.Repeats, "repeats", 7, "measurements of each side")
	f.IntVar(&o.Steps, "steps", 20, "steps of training in a row, in each")
	out.flags(f)
}

// gpuFailed adds the exit code for a missing dependency to err, if err reports one.
func gpuFailed(err error) error {
	if errors.Is(err, gpu.ErrMissing) || errors.Is(err, bench.ErrPeerMissing) {
		return missing(err)
	}
	return err
}

func gpuBenchCommand() *cobra.Command {
	var o gpu.Options
	var out benchOutput
	c := &cobra.Command{
		Use:   "bench",
		Short: "Images a second, milliseconds of each layer, and the roofline",
		Long: `Trains a network (forward, backward, Adam) on a batch that lies on the GPU, times
each kernel, and says how far that is from what the GPU could do: the operations
and bytes of its own kernels over ceilings that are measured in the same call.

  lockstep gpu bench --model unet-128 --json
  lockstep gpu bench --model unet-512 --trace trace.json   (for Perfetto)`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			if err := noGPU(); err != nil {
				return err
			}
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			r, err := gpu.Runs(c.Context(), o)
			if err != nil {
				return gpuFailed(err)
			}
			return r.Write(c.OutOrStdout(), out.json)
		},
	}
	gpuFlags(c.Flags(), &o, &out)
	c.Flags().StringVar(&o.Trace, "trace", "", "file for the times of all kernels of some steps, as Chrome's trace viewer reads it")
	c.Flags().BoolVar(&o.Kernels, "kernels", false, "also ask CUPTI for the kernels of recorded steps (not under a profiler of NVIDIA's)")
	return c
}

func gpuPeersCommand() *cobra.Command {
	var o gpu.Options
	var out benchOutput
	c := &cobra.Command{
		Use:   "peers",
		Short: "Training steps beside PyTorch's on the same GPU",
		Long: `Trains a network (forward, backward, Adam) here and in PyTorch, as it is and
through torch.compile, in turns: some steps in a row of each, on batches that lie
on the GPU. Both must have the same parameters and FLOPs. PyTorch with CUDA must be
there, or the exit code is 3.

  lockstep gpu peers --model unet-128 --json -v
  lockstep gpu peers --model unet-512 --modes eager`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			if err := noGPU(); err != nil {
				return err
			}
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := gpu.PeerRuns(c.Context(), o)
			if len(records) > 0 { // results of the modes that did start
				err = errors.Join(bench.Write(c.OutOrStdout(), records, out.json), err)
			}
			return gpuFailed(err)
		},
	}
	gpuFlags(c.Flags(), &o, &out)
	c.Flags().StringSliceVar(&o.Modes, "modes", gpu.Modes(), "of PyTorch")
	peerFlags(c.Flags(), &o.Peer)
	return c
}
