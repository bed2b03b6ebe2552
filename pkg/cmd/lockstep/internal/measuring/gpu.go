package measuring

import (
	"cmp"
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
	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/selftest"
	"lockstep/pkg/internal/buildid"
)

// GPU returns the command gpu.
func GPU() *cobra.Command {
	c := &cobra.Command{
		Use:   "gpu",
		Short: "Check and measure the GPU engine on this machine",
		Long: `Checks and measures the engine on this machine's GPU. If no GPU can be used, the
exit code is 3, and the message lists where the libraries were searched; lockstep
doctor lists them too. environment/gpu-check runs all checks and stores the results.`,
	}
	c.AddCommand(gpuVersionsCommand(), gpuFirstCommand(), gpuSelfTestCommand(), gpuBenchCommand(), gpuPeersCommand(), gpuCurvesCommand())
	return c
}

// missingGPUError returns nil if this machine has a usable GPU, else an error with the code cli.ExitMissing.
func missingGPUError() error {
	m := engine.Devices()
	if m.NoGPU == "" {
		return nil
	}
	looked := ""
	if len(m.Looked) > 0 {
		looked = "; searched in " + strings.Join(m.Looked, "; ")
	}
	return cli.AsMissingError(fmt.Errorf("no GPU can be used: %s%s", m.NoGPU, looked))
}

func gpuVersionsCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "versions",
		Short: "List GPUs, driver and libraries, with versions and files",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			m := engine.Devices()
			if asJSON {
				if err := cli.WriteJSON(c.OutOrStdout(), "  ", m); err != nil {
					return err
				}
			} else if _, err := fmt.Fprint(c.OutOrStdout(), m); err != nil {
				return err
			}
			return missingGPUError()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func gpuFirstCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "first",
		Short: "Collect the most important facts about a GPU in a few minutes (JSON)",
		Long: `Prints as JSON the versions and files of the libraries, the properties of the GPU
that cuDNN needs to compile for it on a machine without a GPU, and a comparison of
complete steps of small U-Nets in bf16 with the reference engine. The exit code is 1
if they differ.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := missingGPUError(); err != nil {
				return err
			}
			first, err := selftest.CollectFirstReport(c.Context())
			writeErr := cli.WriteJSON(c.OutOrStdout(), " ", struct {
				Build   string          `json:"build"`
				Machine *engine.Machine `json:"machine"`
				selftest.FirstReport
			}{buildid.ID, engine.Devices(), first})
			return errors.Join(err, writeErr)
		},
	}
}

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
		Short: "Compare every kernel and plan with the reference engine",
		Long: `Runs every kernel, every plan that cuDNN offers for a set of convolutions, and
complete steps of U-Nets, with and without captured graphs, on random data in
memory that was filled with NaN before, and compares the results with the
reference engine in float64. Each line of the table is a check with its largest
error, relative to the largest value, and the limit of that error. The exit code
is 1 if a check fails.

  lockstep gpu selftest
  lockstep gpu selftest --precision bf16 --only conv --seed 7`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return cli.AsUsageError(err)
			}
			if err := missingGPUError(); err != nil {
				return err
			}
			o.Large = !small
			if o.Seed == 0 {
				o.Seed = rand.Uint64N(math.MaxInt64) + 1
			}
			o.Report = func(k selftest.Check) {
				if !k.OK {
					fmt.Fprintf(c.ErrOrStderr(), "FAILED %s, %s, %s: error %.3g, want at most %.3g; %s\n", k.Name, k.Type, k.Shape, k.Error, k.Bound, k.Detail)
				}
			}
			begin := time.Now()
			checks, err := selftest.Run(c.Context(), o)
			r := selfTestResult{
				Build: buildid.ID, Device: firstGPUName(), Seed: o.Seed, Seconds: time.Since(begin).Seconds(),
				Failed: selftest.CountFailed(checks), Checks: checks,
			}
			if writeErr := r.write(c.OutOrStdout(), asJSON); writeErr != nil {
				return writeErr
			}
			if err == nil && r.Failed > 0 {
				err = fmt.Errorf("self-test: %d of %d checks failed (--seed %d repeats the same checks)", r.Failed, len(checks), o.Seed)
			}
			return err
		},
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.StringVar(&o.Device, "device", "cuda", "cuda, or cuda:1 for the second GPU")
	f.StringSliceVar(&o.Precisions, "precision", nil, "precisions to check, of "+strings.Join(selftest.Precisions(), ", ")+" (default: all)")
	f.StringVar(&o.Only, "only", "", "only checks whose names contain this text")
	f.Uint64Var(&o.Seed, "seed", 0, "seed of the data; 0: a random seed")
	f.BoolVar(&small, "small", false, "skip the shapes of real networks")
	return c
}

func firstGPUName() string {
	for _, d := range engine.Devices().Devices {
		if d.Kind == "cuda" {
			return d.Name
		}
	}
	return ""
}

func (r selfTestResult) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return cli.WriteJSON(w, " ", r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "check\ttype\tshape\tworst error\tbound\tverdict\t")
	for _, k := range r.Checks {
		verdict := "ok"
		if !k.OK {
			verdict = "FAILED"
		}
		detail := cmp.Or(k.Detail, strings.Join(k.Kernels, " "))
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2e\t%.2e\t%s\t%s\n", k.Name, k.Type, k.Shape, k.Error, k.Bound, verdict, detail)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s, seed %d: %d checks, %d failed, %.0f s\n", r.Device, r.Seed, len(r.Checks), r.Failed, r.Seconds)
	return err
}

func addGPUFlags(f *pflag.FlagSet, o *gpu.Options, out *benchOutputFlags) {
	f.StringVar(&o.Model, "model", "unet-512", "one of "+strings.Join(gpu.Models(), ", "))
	f.StringVar(&o.Precision, "precision", "bf16", "bf16, fp16 or fp32")
	f.BoolVar(&o.TF32, "tf32", false, "with --precision fp32: convolutions may round their inputs to TF32")
	f.StringVar(&o.Device, "device", "cuda", "cuda, or cuda:1 for the second GPU")
	f.IntVar(&o.Repeats, "repeats", 7, "measurements of each side")
	f.IntVar(&o.Steps, "steps", 20, "consecutive training steps in each measurement")
	out.addFlags(f)
}

func gpuBenchCommand() *cobra.Command {
	var o gpu.Options
	var out benchOutputFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure images per second, memory, and the time of each layer",
		Long: `Trains a network (forward, backward, Adam) on a batch in the GPU's memory, and measures
the time of a step, and of each kernel by itself.

  lockstep gpu bench --model unet-128 --json
  lockstep gpu bench --model unet-512 --trace trace.json   (for Perfetto)`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return cli.AsUsageError(err)
			}
			if err := cli.CheckOutput(o.Trace); err != nil {
				return err
			}
			if err := missingGPUError(); err != nil {
				return err
			}
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			r, err := gpu.MeasureLayers(c.Context(), o)
			if err != nil {
				return err
			}
			return r.Write(c.OutOrStdout(), out.json)
		},
	}
	addGPUFlags(c.Flags(), &o, &out)
	c.Flags().StringVar(&o.Trace, "trace", "", "write the times of all kernels of some steps to this file, for Chrome's trace viewer")
	c.Flags().BoolVar(&o.Kernels, "kernels", false, "also measure the kernels of captured steps with CUPTI (not possible under a profiler of NVIDIA)")
	return c
}

func gpuPeersCommand() *cobra.Command {
	var o gpu.Options
	var out benchOutputFlags
	c := &cobra.Command{
		Use:   "peers",
		Short: "Compare training steps with PyTorch's on the same GPU",
		Long: `Trains a network (forward, backward, Adam) in Lockstep and in PyTorch, in eager mode
and through torch.compile, alternating: some consecutive steps of each, on batches in
the GPU's memory. Both sides must have the same parameters and FLOPs. If PyTorch with
CUDA is missing, the exit code is 3.

  lockstep gpu peers --model unet-128 --json -v
  lockstep gpu peers --model unet-512 --modes eager`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return cli.AsUsageError(err)
			}
			if err := missingGPUError(); err != nil {
				return err
			}
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := gpu.MeasurePeers(c.Context(), o)
			if len(records) > 0 { // results of the modes that did start
				err = errors.Join(bench.Write(c.OutOrStdout(), records, out.json), err)
			}
			return err
		},
	}
	addGPUFlags(c.Flags(), &o, &out)
	c.Flags().StringSliceVar(&o.Modes, "modes", gpu.Modes(), "modes of PyTorch")
	addPeerFlags(c.Flags(), &o.Peer, "PyTorch", "it")
	return c
}
