// Package cuda is the engine for NVIDIA GPUs. It was not run on a GPU as of 2026-11-30; see
// logs/gpu for later results. Its tests use a simulated GPU (package internal/clib/clibtest;
// our own kernels are compiled for the CPU), so we make no claims about its speed.
//
//	e, err := cuda.New(engine.Options{Device: "cuda", Precision: "bf16", …}, localRank)
//	exe, err := e.Load(program, nil)
//	timing, err := exe.Step(ctx, sync, &update)
//
// NVIDIA's libraries (the driver, cuDNN 9, NVRTC, NCCL) are opened at run time: the program
// can be built and started without them. If one is not found, New's error lists the places
// that were searched. An engine makes all calls of the driver in one dedicated thread, in
// which the device's primary context is current.
//
// # Packages
//
// Package kernels contains the engine's own kernels and describes their launches; autotune
// chooses cuDNN's plans by time and keeps the choices; internal/number converts numbers.
// All three are below this package and do not depend on executables. Package selftest is
// above it and uses it through internal/probe.
//
// What remains here is larger than a package of this project should be, since lowering,
// memory, launches, steps and profiles all work on the private state of one executable. By
// topic: lower*.go turn a program into tasks; layout.go, location.go, allocate.go and
// store.go place tensors in memory; compile*.go, convolve.go, variants.go and graphs.go
// make the tasks' commands; load.go, noise.go and tuning.go build an executable; replay.go,
// step.go, split.go, syncnorm.go, input.go, resident.go and optimizer.go run its steps;
// profile.go and peak.go measure; device.go, thread.go, memory.go, images.go and command.go
// drive the GPU.
//
// # Layout
//
// Activations [n,c,spatial…] are stored channels-last, as [n][spatial…][c], with the
// channels padded to a multiple of eight; any number of spatial dimensions is allowed.
// Weights [k,c,window…] are stored as [k][window…][c], padded in k and c. Vectors are
// padded in the same way. Padding is zero and stays zero. A concatenation whose first
// operand has a multiple of eight channels needs no copies, and neither does a slice that
// starts at such a channel: the smaller tensors are views of the larger one, with its
// pitch. cuDNN does not promise engines for such views. If tuning finds none, or only slow
// ones, convolutions use copies. With ConcatInPlace false, all concatenations and slices
// are copied.
//
// # Fusion
//
// With Fuse, batch norm and ReLU, sums of gradients and copies of concatenations are part
// of other kernels. A cuDNN graph may contain, besides a convolution, its bias and ReLU, a
// residual sum or another gradient that is added to its result, and in fp16 the statistics
// of the batch norm after it. The engine uses such a graph if cuDNN has a plan for it that
// is faster than the convolution followed by our kernel. The tuning file contains what was
// chosen, and why a graph had no plan.
//
// With FuseNorm, in fp16 and on images, the gradient of the data may also sum for the
// gradient of the batch norm before it (DgradDreluBNBwdWeight in cuDNN's developer guide).
// Synchronized batch norms are left out. The choice, and the times, are in the tuning file.
//
// # Data
//
// Inputs are copied through page-locked memory, by SetInput, or by NextBatch and ahead of the
// step. A training set of bytes can be kept on the GPU (engine.Capabilities.HoldDataset): then
// a step needs only the indexes of its samples, which NextBatch copies, and its graph crops, flips, rotates and brightens
// them as pkg/data does, with bit-identical results.
//
// # Optimizers
//
// SGD (with heavy-ball or Nesterov's momentum), Adam, AdamW, LARS and LAMB run over flat
// buffers, in fp32 on the master weights, and are part of the step's graph. Norms, which
// clipping, LARS and LAMB need, are summed in float64 in a fixed order: first within each
// chunk of a layer, then over the layer's chunks. Gradients are clipped after the exchange,
// by the norm of the mean gradient. If an update uses several batches, their gradients are
// added up on the GPU.
//
// # Precision
//
// Activations, and the copies of the weights that convolutions read, are bf16,
// fp16 or fp32 (with or without TF32). Sums, statistics, losses, the logits of a
// one-channel head, gradients of parameters, and the optimizer's weights and slots are
// always fp32. In fp16 the loss is scaled: a step whose gradients overflow skips its update
// and halves the scale, and 2000 steps in a row without overflow double it.
//
// # A step
//
// Load fixes every launch. Activations share one arena: tensors whose lifetimes do not
// overlap may use the same memory. For each convolution, Load times the algorithms that
// cuDNN's heuristics suggest first for its shape (about ten per heuristic, as far as time
// allows) and chooses the fastest. The choices are stored in the user's cache folder
// (LOCKSTEP_TUNING_CACHE is another folder, or "off"), together with the machine code of
// our own kernels, which NVRTC needs seconds to compile. Algorithms whose results differ in
// bits from run to run are used only if there are no others, so that a step can be repeated
// bit for bit. Notices names the convolutions that have no other algorithm.
//
// The first step of a kind runs command by command, the second is captured as a CUDA graph,
// and from then on a step is one launch. Values that change from step to step (learning
// rate, step, loss scale) are in a small block of the GPU's memory.
//
// # Data parallel
//
// Gradients are one flat buffer, bucket after bucket. A strategy that can be captured in a
// graph (NCCL) exchanges each bucket in another stream during the backward pass. A strategy
// that exchanges through the host splits the step at its buckets, which are copied through
// page-locked memory while the backward pass goes on, so that several ranks can share a
// GPU. Synchronized batch norms add their sums up over the ranks in the same way: by NCCL
// within the captured step, in one order with the buckets, or on the host, which splits the
// step at each of them.
//
// The loss of a rank was tested only with simulated libraries. According to NCCL's
// documentation and source code, ncclCommAbort ends a step that waits, and a communicator
// can be destroyed after its graphs.
//
// # Profiles
//
// Profile sets a window of steps for NVIDIA's profilers, or for Lockstep's own trace of
// every kernel.
package cuda
