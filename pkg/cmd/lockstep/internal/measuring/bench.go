// Package measuring contains the benchmarks and the checks of GPUs.
package measuring

import (
	"context"
	"flag"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lockstep/pkg/bench"
	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/engine"
)

// Bench returns the command bench.
func Bench() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Compare Lockstep with other programs",
		Long: `Measures Lockstep and the programs that it is compared with (the peers),
alternating, in one call. Run it on an idle machine. ` + bench.InstallCommand + `
installs the peers; if one is missing, the exit code is 3.`,
	}
	c.AddCommand(benchEngineCommand(), benchAblationCommand(), benchAllReduceCommand(), benchReadCommand(), benchLoaderCommand(), benchScalingCommand(), benchWorkerCommand())
	return c
}

type benchOutputFlags struct{ json, verbose bool }

func (o *benchOutputFlags) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.json, "json", false, "print a JSON array")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print progress messages")
}

// runBench validates the options o, calls measure, and writes the records. output points to the
// field of o for progress messages.
func runBench[O interface{ Validate() error }](c *cobra.Command, o *O, output *io.Writer, out benchOutputFlags, measure func(context.Context, O) ([]bench.Record, error)) error {
	if err := (*o).Validate(); err != nil {
		return cli.AsUsageError(err)
	}
	if out.verbose {
		*output = c.ErrOrStderr()
	}
	records, err := measure(c.Context(), *o)
	if err != nil {
		return err
	}
	return bench.Write(c.OutOrStdout(), records, out.json)
}

func addShapeFlags(f *pflag.FlagSet, s *bench.Shape) {
	*s = bench.DefaultShape()
	f.StringVar(&s.Model, "model", s.Model, "network: "+strings.Join(bench.Models(), ", ")+" (default: the first); each has its own default size")
	f.IntVar(&s.Base, "base", s.Base, "channels of the network's first level")
	f.IntVar(&s.Depth, "depth", s.Depth, "levels of a U-Net (2-D: above its bridge)")
	f.IntVar(&s.Size, "size", s.Size, "height and width of an image, side of a volume")
	f.IntVar(&s.Batch, "batch", s.Batch, "images per worker and step")
}

// setModelDefaults sets the dimensions of s to the defaults of its model, except those that flags have set.
func setModelDefaults(f *pflag.FlagSet, s *bench.Shape) error {
	own, err := bench.ShapeOf(s.Model)
	if err != nil {
		return cli.AsUsageError(err)
	}
	s.Model = own.Model
	for _, v := range []struct {
		flag     string
		to, from *int
	}{{"base", &s.Base, &own.Base}, {"depth", &s.Depth, &own.Depth}, {"size", &s.Size, &own.Size}, {"batch", &s.Batch, &own.Batch}} {
		if !f.Changed(v.flag) {
			*v.to = *v.from
		}
	}
	return nil
}

// addPeerFlags adds the flags that locate the peers. For the help texts, what names the Python
// modules that the peers need, and it is the pronoun for them.
func addPeerFlags(f *pflag.FlagSet, p *bench.PeerOptions, what, it string) {
	f.StringVar(&p.Scripts, "peers", "", "folder with the peers' scripts (default: environment/peers of the checkout)")
	f.StringVar(&p.Python, "python", "", "Python interpreter with "+what+" (default: the first python3 that has "+it+")")
}

func benchEngineCommand() *cobra.Command {
	var o bench.EngineOptions
	var out benchOutputFlags
	c := &cobra.Command{
		Use:   "engine",
		Short: "Compare training steps of the CPU engine with PyTorch's",
		Long: `Trains a network (forward, backward, Adam) in Lockstep and in PyTorch,
alternating: with each number of threads, with the plain Go kernels
(LOCKSTEP_CPU=go) on one thread, and with several workers of one thread that
exchange gradients (PyTorch with gloo). Both sides must have the same parameters
and FLOPs; PyTorch uses the faster of its memory formats. The peak memory of each
side's processes is compared too. The networks are a 2-D U-Net, Keras' ResNet50V2
at 32×32, and at 32×32×32 the 3-D U-Net of strided convolutions and the 3-D U-Net
of 3×3×3 convolutions (unet3d-k3; Çiçek et al., 2016).

  lockstep bench engine --json
  lockstep bench engine --model resnet50v2 --plain-repeats 0
  lockstep bench engine --precision bf16
  lockstep bench engine --threads 1 --workers 0 --plain-repeats 0 -v`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := setModelDefaults(c.Flags(), &o.Shape); err != nil {
				return err
			}
			return runBench(c, &o, &o.Output, out, bench.MeasureEngine)
		},
	}
	f := c.Flags()
	f.IntSliceVar(&o.Threads, "threads", []int{1, 2}, "numbers of threads of one worker")
	f.IntVar(&o.Workers, "workers", 2, "workers of one thread that exchange gradients; 0: none")
	f.IntVar(&o.Repeats, "repeats", 5, "steps of each side")
	f.StringVar(&o.Precision, "precision", "fp32", "fp32, or bf16 (PyTorch: autocast)")
	f.IntVar(&o.PlainRepeats, "plain-repeats", 2, "steps with the plain Go kernels; 0: not measured")
	addShapeFlags(f, &o.Shape)
	addPeerFlags(f, &o.Peer, "PyTorch", "it")
	out.addFlags(f)
	return c
}

func benchAblationCommand() *cobra.Command {
	var o bench.AblationOptions
	var out benchOutputFlags
	c := &cobra.Command{
		Use:   "ablation",
		Short: "Measure the gain of each optimization of the engine",
		Long: `Trains the benchmarks' U-Net with all optimizations and without one of them,
alternating: the choice of the convolution algorithm compared with each algorithm
alone, fused kernels, with several workers the exchange of gradients during the
backward pass, and precision bf16 where the processor has instructions for it.

  lockstep bench ablation --repeats 5
  lockstep bench ablation --only "precision bf16" --model resnet50v2`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := setModelDefaults(c.Flags(), &o.Shape); err != nil {
				return err
			}
			return runBench(c, &o, &o.Output, out, bench.MeasureAblation)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Threads, "threads", 1, "threads of one worker")
	f.IntVar(&o.Workers, "workers", 2, "workers of one thread that exchange gradients; 0: none")
	f.IntVar(&o.Repeats, "repeats", 5, "measured steps with and without each optimization")
	f.StringVar(&o.Only, "only", "", "measure only comparisons whose name contains this")
	addShapeFlags(f, &o.Shape)
	out.addFlags(f)
	return c
}

func benchAllReduceCommand() *cobra.Command {
	var o bench.AllReduceOptions
	var out benchOutputFlags
	var low, high, factor int
	c := &cobra.Command{
		Use:   "allreduce",
		Short: "Compare all-reduces with those of Open MPI and gloo",
		Long: `Adds up float32 buffers over all workers: with Lockstep over shared memory, unix
sockets, TCP and MPI, with Open MPI, and with PyTorch's gloo, alternating. It prints the
columns of nccl-tests (median time of one all-reduce; algbw: size per time; busbw:
2(n−1)/n times that for n workers; #wrong: elements that were not the sum), then the
ratios, which are medians over the repeats. Programs that are not installed are skipped
by name, unless --transports or --beside names them.

Every program sums in place in one buffer per worker, which is in use before the clock
starts. Open MPI's buffer is from MPI_Alloc_mem. "stream" is no all-reduce, but the limit
of one over TCP: 2 processes that send each other the buffer at the same time.

  lockstep bench allreduce
  lockstep bench allreduce --workers 2 --min-bytes 64000 --factor 2 --transports shm
  lockstep bench allreduce --workers 4 --algorithms direct,ring,halving,tree
  lockstep bench allreduce --sizes 1000,8000000 --beside openmpi --json
  lockstep bench allreduce --workers 2 --sizes 8000000,32000000,100000000 --transports tcp --beside stream`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			if len(o.Sizes) == 0 {
				var err error
				if o.Sizes, err = bench.BufferSizes(low, high, factor); err != nil {
					return cli.AsUsageError(err)
				}
			}
			if err := o.Validate(); err != nil {
				return cli.AsUsageError(err)
			}
			result, err := bench.MeasureAllReduce(c.Context(), o)
			if err != nil {
				return err
			}
			if err := result.Write(c.OutOrStdout(), out.json); err != nil {
				return err
			}
			return result.CheckResults()
		},
	}
	f := c.Flags()
	f.IntSliceVar(&o.Workers, "workers", []int{2, 4}, "numbers of processes; each process needs a core")
	f.IntVarP(&low, "min-bytes", "b", 1_000, "smallest size of the buffer in bytes")
	f.IntVarP(&high, "max-bytes", "e", 100_000_000, "largest size of the buffer in bytes")
	f.IntVarP(&factor, "factor", "f", 10, "each size is this times the previous one")
	f.IntSliceVar(&o.Sizes, "sizes", nil, "sizes of the buffer in bytes, instead of --min-bytes, --max-bytes and --factor")
	for _, name := range []string{"min-bytes", "max-bytes", "factor"} {
		c.MarkFlagsMutuallyExclusive("sizes", name)
	}
	f.StringSliceVar(&o.Transports, "transports", nil, "transports of Lockstep: "+strings.Join(bench.AllReduceTransports(), ", ")+" (default: those that are installed)")
	f.StringSliceVar(&o.Algorithms, "algorithms", nil, "algorithms of Lockstep, one row for each: "+strings.Join(bench.AllReduceAlgorithms(), ", ")+" (default: that of each transport)")
	f.StringSliceVar(&o.Beside, "beside", nil, "programs to compare with: "+strings.Join(bench.AllReducePeers(), ", ")+" (default: those that are installed; stream: with 2 workers over tcp)")
	f.IntVar(&o.Repeats, "repeats", 15, "repeats of each size and side")
	addPeerFlags(f, &o.Peer, "PyTorch", "it")
	f.BoolVar(&out.json, "json", false, "print a JSON object with the rows")
	f.BoolVarP(&out.verbose, "verbose", "v", false, "print progress messages")
	return c
}

func benchScalingCommand() *cobra.Command {
	var o bench.ScalingOptions
	var out benchOutputFlags
	c := &cobra.Command{
		Use:   "scaling",
		Short: "Measure weak scaling: the throughput of N workers relative to one",
		Long: `Measures the throughput of each number of workers with a fixed batch per worker,
and reports the median of the ratios. All trainings run at the same time, but one of
them trains for an epoch while the others wait; every 5 repeats they start anew. Run it
on an idle machine. The throughput of N workers is also compared with N simultaneous
trainings of one worker: these exchange nothing and do not wait for each other, so they
show the limit of this machine. LOCKSTEP_CPU selects the instruction set.

  lockstep bench scaling --workers 1,2 --repeats 25 --json
  LOCKSTEP_CPU=avx2 lockstep bench scaling --repeats 25`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if out.verbose {
				o.Output = c.ErrOrStderr()
			}
			records, err := bench.MeasureScaling(c.Context(), o)
			if err != nil {
				return err
			}
			return bench.Write(c.OutOrStdout(), records, out.json)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Config, "config", "unet2d-cells", "a shipped config or a .yaml file")
	f.IntSliceVar(&o.Workers, "workers", []int{1, 2}, "numbers of workers; the first is the baseline")
	f.IntVar(&o.Repeats, "repeats", 5, "measurements of each number of workers")
	f.IntVar(&o.Epochs, "epochs", 1, "epochs of each measurement")
	f.IntVar(&o.Threads, "threads", 1, "threads per worker")
	out.addFlags(f)
	return c
}

// benchWorkerCommand returns the hidden command that runs Lockstep's side of the other benchmarks.
func benchWorkerCommand() *cobra.Command {
	o := bench.WorkerOptions{Engine: engine.DefaultOptions(), Shape: bench.DefaultShape()}
	c := &cobra.Command{
		Use: "worker", Hidden: true, Args: cobra.NoArgs,
		Short: "Answer requests from standard input until it ends",
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Task == bench.TaskRead {
				cli.ReduceGC() // as in the commands that read logs
			}
			return bench.RunWorker(c.Context(), o, c.InOrStdin(), c.OutOrStdout())
		},
	}
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	o.AddFlags(f)
	c.Flags().AddGoFlagSet(f)
	return c
}
