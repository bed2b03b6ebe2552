// Package cuda is the engine on NVIDIA GPUs. It has been tested on a simulated
// GPU only (package clib/clibtest, with our own kernels compiled for the processor):
// nobody has run it on a real one yet, and no speed is claimed.
//
//	e, err := cuda.New(engine.Options{Device: "cuda", Precision: "bf16", …}, localRank)
//	exe, err := e.Load(program, nil)
//	timing, err := exe.Step(ctx, sync, &update)
//
// NVIDIA's libraries (the driver, cuDNN 9, NVRTC, NCCL) are opened at run time:
// the program needs none of them to be built or to start. Where they are not
// found, New says where it looked. Everything that an engine asks of its GPU is
// asked by one thread of its own, which holds the device's primary context.
//
// # Packages
//
// Package kernels has the engine's own kernels and describes their launches; autotune chooses
// cuDNN's plans by time and keeps the choices; internal/number converts numbers. All three
// are below this package and know nothing of an executable. Package selftest is above it and
// sees it through internal/probe.
//
// What is left here is larger than a package of this project should be, since lowering,
// memory, launches, steps and profiles all work on the private state of one executable. By
// topic: lower*.go turn a program into tasks; layout.go, location.go, allocate.go and store.go
// place tensors in memory; compile*.go, convolve.go, variants.go, graphs.go and prologue.go
// make the tasks' commands; load.go, noise.go and tuning.go build an executable; replay.go,
// step.go, split.go, syncnorm.go, input.go, resident.go and optimizer.go run its steps;
// profile.go, roofline.go and planned.go measure and estimate them; device.go, thread.go,
// memory.go, images.go and command.go drive the GPU.
//
// # Layout
//
// Activations [n,c,spatial…] are stored channels-last, as [n][spatial…][c], with the
// channels padded to a multiple of eight; any number of spatial dimensions is
// allowed. Weights [k,c,window…] are stored as [k][window…][c], padded in k and c. Vectors
// are padded likewise. Padding is zero and stays zero. A concatenation whose first
// part has a multiple of eight channels, and a slice that begins at one, are views
// of one memory by a pitch, without copies. cuDNN does not promise engines for such
// views: where tuning finds none, or slow ones, convolutions use copies. ConcatInPlace
// false makes all of them copies.
//
// # Fusion
//
// With Fuse, batch norm and ReLU, sums of gradients and copies of concatenations are
// part of other kernels. cuDNN computes in one graph with a convolution its bias and ReLU, a
// residual sum or another gradient that is added to its result, and in fp16 the statistics
// of the batch norm after it, if it has a plan for the graph that is faster than its
// convolution and our kernel. The tuning file contains what was chosen, and why a graph had
// no plan.
//
// With FuseNorm, in fp16 and on images, convolutions and the gradients of their weights
// may also apply the batch norm and ReLU before them as they read. If cuDNN can do that for
// all readers of a batch norm's result (ConvBNfprop and ConvBNwgrad in its developer guide),
// and they are faster than the batch norm and the plain convolutions, the result is never
// written. The gradient of the data may sum for the gradient of the batch norm before it
// (DgradDreluBNBwdWeight). Scale and shift are fp16 then, with two more roundings to fp16
// before ReLU; statistics stay fp32. Synchronized batch norms and recomputed activations are
// left out. Both choices, and the times, are in the tuning file. PlannedWork counts the bytes
// that all this moves, without a GPU.
//
// # Data
//
// Inputs are copied through page-locked memory, by SetInput or ahead of the step. A training
// set of bytes can be kept on the GPU (Hold): then a step needs only the numbers of its
// samples (Samples), and its graph crops, flips, rotates and lights them as pkg/data does,
// to the same bits.
//
// # Optimizers
//
// SGD (with heavy-ball or Nesterov's momentum), Adam, AdamW, LARS and LAMB run over flat
// buffers, in fp32 on the master weights, and are part of the step's graph. Norms, which
// clipping, LARS and LAMB need, are summed in double in a fixed order: a sum for each
// chunk of a layer, then over its chunks. Gradients are clipped after the exchange, by the
// norm of the mean gradient. Where an update takes several batches, their
// gradients are added up on the GPU.
//
// # Precision
//
// Activations, and the copies of the weights that convolutions read, are bf16,
// fp16 or fp32 (with or without TF32). Sums, statistics, losses, the logits of a
// one-channel head, gradients of parameters, the optimiser's weights and slots are
// fp32 always. In fp16 the loss is scaled: a step whose gradients overflow leaves
// its update out and halves the scale, 2000 good ones in a row double it.
//
// # A step
//
// At Load every launch is fixed: memory is planned by lifetimes in one arena, and
// each convolution gets the fastest of the algorithms that cuDNN's heuristics
// suggest first for its shape (about ten for each heuristic, as far as time allows),
// timed on the spot and kept in a file below the user's cache folder
// (LOCKSTEP_TUNING_CACHE names another one, or "off"), where the machine code of our
// own kernels, which takes NVRTC seconds, is kept too. Algorithms that give other
// bits from run to run are left out where there are others, so that a step repeats bit
// for bit; Notices names the convolutions that have no others. The
// first step of a kind runs command by command, the second is captured as a CUDA graph,
// and from then on a step is one launch. What changes from step to step (learning
// rate, step, loss scale) is in a small block of the GPU's memory.
//
// # Data parallel
//
// Gradients are one flat buffer, bucket after bucket. A strategy that can be
// recorded (NCCL) is handed each bucket in a stream beside backward; one that
// exchanges through the host splits the step at its buckets, which are copied through
// page-locked memory while backward goes on, so that several ranks can share a GPU.
// Synchronized batch norms add their sums up over the ranks in the same way: by NCCL
// within the captured step, in one order with the buckets, or on the host, which splits
// the step at each of them.
//
// What happens when a rank is lost is known from simulated libraries only. That NCCL's
// abort ends a step which waits, and that a communicator ends once its graphs are
// destroyed, is what its documentation and source say.
//
// # Profiles
//
// Profile sets a window of steps for NVIDIA's profilers, or for a trace of every
// kernel of our own. StepWork and Ceilings say what a step takes at least.
package cuda
