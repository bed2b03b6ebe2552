package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/strategy/internal/compress"
	"lockstep/pkg/strategy/internal/server"
	"lockstep/pkg/strategy/stage"
)

// NameDDP is the name of data parallelism with replicated parameters, the default strategy.
const NameDDP = "ddp"

// Kind is a kind of strategy that a config can select by its name.
type Kind struct {
	Name      string // value of the key strategy in configs and in run.json
	About     string // explanation in one paragraph
	Guarantee string // what the result of a training is equal to, or what the strategy gives up
	// Bytes is a formula for the number of bytes that each worker sends per optimizer step, where P
	// is the size of the parameters in bytes and N the number of workers. Sums of statistics,
	// losses and norms are not counted, because their size does not depend on P.
	Bytes string
	// SentBytes computes the formula Bytes for given options and numbers, averaged over all
	// workers. Messages without parameters or gradients are not counted. It is nil if the formula
	// needs more than these numbers; see SentEstimator.
	SentBytes func(c Config, workers int, parameterBytes float64) float64
	Options   []string // names of its options, fields of Config
	// Exact reports whether N workers compute the same parameters as one worker with an N-fold
	// batch, up to rounding. For a staged strategy, the one worker has the same batch. "lockstep
	// verify dp" checks strategies that are exact.
	Exact bool

	check        func(c Config) error              // validates the options; nil: all values are valid
	checkWorkers func(c Config, workers int) error // nil: any number of workers
	// new creates the strategy, like New. The options of c are valid.
	new func(ctx context.Context, c Config, gpu *engine.Accelerator, group collective.Group) (Strategy, error)
}

// Kinds returns all kinds of strategies that a config can select. The first one is the default.
func Kinds() []Kind {
	return []Kind{{
		Name: NameDDP,
		About: "Data parallelism with replicated parameters: every worker has all parameters and computes the gradients of its own batch. " +
			"The gradients are averaged over the workers in buckets, while the backward pass computes the next bucket, and every worker's optimizer applies the same update. " +
			"broadcast_buffers also copies rank 0's running statistics of batch norms before each batch, as PyTorch does by default. " +
			"no_communication leaves out the exchange of gradients and statistics, to measure what it costs: the losses of such a run are not real. The workers only synchronize after each step, to stop together. " +
			"gradient_compression sends gradients rounded to 16 bits (fp16, bf16). " +
			"Each worker adds what it has not sent to its next gradient (error feedback).",
		Guarantee: "equal to one worker with an N-fold batch, up to rounding; with gradient_compression an approximation: part of each gradient arrives in later steps",
		Bytes:     "2·(N−1)/N·P; fp16, bf16: (N−1)/N·P",
		SentBytes: func(c Config, workers int, parameterBytes float64) float64 {
			if c.NoCommunication {
				return 0
			}
			return allReduceBytes(workers, parameterBytes)
		},
		Options: []string{"broadcast_buffers", "no_communication", "gradient_compression"},
		Exact:   true,
		check:   checkDDPOptions,
		new:     newDDPOrNCCL,
	}, {
		Name: NameHorovod,
		About: "Horovod: like ddp, but each gradient is exchanged by itself, in an order that is negotiated. In each cycle (cycle_time, in milliseconds), every worker tells rank 0, the coordinator, " +
			"which gradients it has computed, in any order, and rank 0 answers which of them all workers have. These are copied to a fusion buffer, up to fusion_threshold MiB at a time, and averaged together; " +
			"bucket_mib has no effect. A gradient in the response cache (cache_capacity) is announced by one bit, others by name and size. " +
			"A worker that does not announce a gradient is named in an error a little before timeout_collective. " +
			"timeline writes Horovod's timeline to trace-horovod.json in the run folder, for lockstep read and Chrome (chrome://tracing).",
		Guarantee: "equal to one worker with an N-fold batch, up to rounding",
		Bytes:     "2·(N−1)/N·P + 8+⌈T/64⌉·8 per cycle; rank 0 sends these to each other worker",
		SentBytes: allReduceSentBytes,
		Options:   []string{"cycle_time", "fusion_threshold", "cache_capacity", "timeline"},
		Exact:     true,
		check:     checkHorovodOptions,
		new:       newHorovod,
	}, {
		Name: NameMirrored,
		About: "Mirrored replicas, as TensorFlow's MirroredStrategy has them: one process trains N replicas, each with its own threads and its part of every global batch, " +
			"and averages their gradients through its memory. The replicas compute what the workers of ddp compute. The config's batch is that of one replica; " +
			"TensorFlow's is the global batch, which is N times as large. lockstep launch starts one process with N replicas. With lockstep train, --replicas chooses how many devices (shares of the cores) are used; by default all.",
		Guarantee: "equal to one worker with an N-fold batch, up to rounding",
		Bytes:     "2·(N−1)/N·P, in memory",
		SentBytes: allReduceSentBytes,
		Exact:     true,
		new:       newMirrored,
	}, {
		Name: NameMultiWorker,
		About: "Mirrored replicas on several nodes, as TensorFlow's MultiWorkerMirroredStrategy has them: each process (node) contains R replicas (replicas), " +
			"and TF_CONFIG lists the addresses of all processes. Gradients are reduced inside each process through its memory, then across processes, where each replica exchanges its share of them with the replicas of the same local rank. " +
			"lockstep launch starts N/R processes and writes TF_CONFIG for them; a process that is started by hand needs it, or the variables of another launcher.",
		Guarantee: "equal to one worker with an N-fold batch, up to rounding",
		Bytes:     "2·(R−1)/R·P in memory, 2·(N−R)/N·P/R across processes",
		// The sum of both.
		SentBytes: allReduceSentBytes,
		Options:   []string{"replicas"},
		Exact:     true,
		check:     checkReplicas, checkWorkers: checkWorkersPerProcess,
		new: newMirrored,
	}, {
		Name: NameLocalSGD,
		About: "Local SGD: every worker updates its own parameters by the gradients of its own batches. Every K steps (steps), and at the end of each epoch, " +
			"the parameters are averaged over the workers. This takes 1/K of the communication. Each worker keeps its own momentum or moments, " +
			"unless average_optimizer averages them together with the parameters.",
		Guarantee: "K = 1 with SGD: equal to ddp, up to rounding; otherwise an approximation: the workers' parameters differ between two averages",
		Bytes:     "2·(N−1)/N·P/K; with average_optimizer also the optimizer's state",
		SentBytes: func(c Config, workers int, parameterBytes float64) float64 {
			return allReduceBytes(workers, parameterBytes) / float64(c.localSteps())
		},
		Options: []string{"steps", "average_optimizer"},
		check: func(c Config) error {
			if c.Steps < 0 {
				return fmt.Errorf("strategy.steps is %d: use the number of steps between two averages, at least 1, or 0 for %d", c.Steps, defaultLocalSteps)
			}
			return nil
		},
		new: newLocalSGD,
	}, {
		Name: NameZeRO1,
		About: "ZeRO stage 1: the optimizer's state is divided among the workers. The gradients are reduce-scattered while the backward pass goes on, " +
			"every worker updates its part of the parameters, and the parts are all-gathered. Each worker needs memory for 1/N of the optimizer's state.",
		Guarantee: "equal to one worker with an N-fold batch, up to rounding",
		Bytes:     "2·(N−1)/N·P",
		SentBytes: allReduceSentBytes,
		Exact:     true,
		new:       newZeRO1,
	}, {
		Name: NameParamServer,
		About: "A parameter server: every worker sends its gradients to the server while the backward pass goes on, the server updates the parameters " +
			"by the mean gradient, and every worker receives the parameters. Only the server has the optimizer's state. " +
			"There are S servers (servers), each with an equal part of the parameters, in the processes of the first S workers. " +
			"With max_staleness above 0 the server is asynchronous: it applies each worker's gradient as soon as it arrives, as an update of its own, " +
			"and a worker reads the parameters before each of its steps. The staleness of a gradient is the number of updates since its worker has read the parameters. " +
			"It is recorded for each step and is at most max_staleness: workers wait where it could become more. Adam counts all updates; " +
			"the schedule counts each worker's own steps, and does not multiply the learning rate by N. " +
			"Batch norms then use each worker's own batch, there are no checkpoints within an epoch, and all workers wait for each other at its end.",
		Guarantee:    "equal to one worker with an N-fold batch, up to rounding; with max_staleness an approximation that differs between two runs: old gradients",
		Bytes:        "a worker P; a server's process (N−1)/S·P + (S−1)/S·P; on average 2·(N−1)/N·P",
		SentBytes:    allReduceSentBytes,
		Options:      []string{"servers", "max_staleness"},
		Exact:        true,
		check:        checkServerOptions,
		checkWorkers: checkServerCount,
		new:          newParamServer,
	}, {
		Name: NameAsyncPeer,
		About: "Asynchronous decentralized SGD (AD-PSGD): every worker updates its own parameters by its own gradients, without a server. The first N/2 workers are passive, the others active: " +
			"after each of its steps, an active worker averages its parameters with those of a random passive one, chosen by its rank and the step, which answers at any time, also while it computes a gradient. " +
			"So no worker waits until another one has finished a step. The staleness of a passive worker's gradient is the number of averages since it has read its parameters; it has no bound. " +
			"All workers wait for each other at the end of an epoch and average the parameters. Each keeps its own momentum or moments; batch norms use its own batch; there are no checkpoints within an epoch.",
		Guarantee: "an approximation that differs between two runs: the workers' parameters differ between two averages, and gradients are old",
		Bytes:     "an active worker P; a passive one P for each active one that averages with it; on average 2·A/N·P with A = N−⌊N/2⌋ active workers",
		SentBytes: func(_ Config, workers int, parameterBytes float64) float64 {
			active := workers - server.PassivePeerCount(workers)
			return 2 * float64(active) / float64(workers) * parameterBytes
		},
		new: newAsyncPeer,
	}, {
		Name: NamePipeline,
		About: "Pipeline parallelism: the network is divided into one stage of consecutive layers per worker, so that the largest number of floating-point operations (FLOPs) of a stage is least. " +
			"FLOPs alone count: layers that mostly move memory, such as batch norms and activations, and the messages are taken to cost nothing, so stages with equal FLOPs may take different times. " +
			"All workers together are one replica. The batches of an optimizer step (accumulate: M) are the micro-batches: they follow each other through the stages, " +
			"which send activations to later stages and gradients to earlier ones. With M = 1 it is model parallelism. schedule is 1f1b, which alternates between forward and backward passes, " +
			"or gpipe, which runs all forward passes first and needs more memory. With equal stages, each is idle for (N−1)/(M+N−1) of a step: the bubble. " +
			"The log has the measured bubbles, and on a CPU --profile writes each pass and each wait of a micro-batch to row stage of trace-<rank>.json. " +
			"Each worker needs memory for the activations, gradients and optimizer state of its stage, and for all parameters, because every worker evaluates the whole network.",
		Guarantee: "equal to one worker with the same batch and accumulate, up to rounding; batch norms use the statistics of a micro-batch in both",
		Bytes:     "M·(A+G), A: activations that later stages read, G: gradients of earlier stages' activations; on average over the workers (ΣA+ΣG)·M/N",
		Options:   []string{"schedule"},
		Exact:     true,
		check: func(c Config) error {
			if s := c.pipelineSchedule(); s != stage.OneForwardOneBackward && s != stage.GPipe {
				return fmt.Errorf("strategy.schedule is %q: use %s or %s", s, stage.OneForwardOneBackward, stage.GPipe)
			}
			return nil
		},
		new: newPipeline,
	}}
}

// allReduceSentBytes is the Kind.SentBytes of strategies whose workers send as much as an
// all-reduce of all gradients, regardless of the number of parts.
func allReduceSentBytes(_ Config, workers int, parameterBytes float64) float64 {
	return allReduceBytes(workers, parameterBytes)
}

// allReduceBytes returns the number of bytes that a worker sends in an all-reduce of n bytes.
func allReduceBytes(workers int, n float64) float64 {
	return 2 * float64(workers-1) / float64(workers) * n
}

// checkServerOptions returns an error if an option of NameParamServer is invalid.
func checkServerOptions(c Config) error {
	switch {
	case c.Servers < 0:
		return fmt.Errorf("strategy.servers is %d: use the number of parameter servers, at least 1, or 0 for 1", c.Servers)
	case c.MaxStaleness < 0:
		return fmt.Errorf("strategy.max_staleness is %d: use the largest number of updates by which a gradient may be late, or 0 for a synchronous server", c.MaxStaleness)
	}
	return nil
}

// checkDDPOptions returns an error if c combines no_communication with another option, or if the
// method of gradient_compression is unknown.
func checkDDPOptions(c Config) error {
	if c.NoCommunication && c.BroadcastBuffers {
		return errors.New("strategy.no_communication and strategy.broadcast_buffers are both true: leave one of them out")
	}
	if !c.Lossy() {
		return nil
	}
	if c.NoCommunication {
		return errors.New("strategy.no_communication and strategy.gradient_compression are both set: leave one of them out")
	}
	if m := c.GradientCompression; !slices.Contains(compress.MethodNames(), m) {
		return fmt.Errorf("strategy.gradient_compression: unknown method %q%s: use %s", m, nearest.Hint(m, compress.MethodNames()), english.JoinOr(compress.MethodNames()))
	}
	return nil
}

// Names returns the names of all strategies.
func Names() []string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// New creates the strategy of one worker. The worker computes on gpu, or on the CPU if gpu is nil.
// With the default strategy, gradients are exchanged by NCCL if every rank has a gpu that is not
// nil. All ranks of group must call New at the same time with the same config.
func New(ctx context.Context, c Config, gpu *engine.Accelerator, group collective.Group) (Strategy, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := c.CheckWorkers(group.Size()); err != nil {
		return nil, err
	}
	k, err := c.findKind()
	if err != nil {
		return nil, err
	}
	return k.new(ctx, c, gpu, group)
}
