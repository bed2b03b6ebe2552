package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const (
	module = "lockstep"
	cache  = "environment/.cache"
	linter = "github.com/golangci/golangci-lint/v2"
)

// raceTests returns the tests for the race detector, by package: those whose goroutines share data. Tests that
// only compare numbers, or are concurrent in other processes, would take most of the time without a finding. A
// name is without the prefix Test, and may be followed by a slash and a regular expression of subtests.
func raceTests() map[string][]string {
	return map[string][]string{
		"collective": {
			"AlgorithmsAddUp", "OperationsEqualNaiveOnes", "EndedContextEndsTheWait", "LeavingRankIsNoticed", "TimeoutOfGroups",
			"MessagesBetweenAllPairs", "MessagesOfRandomSizes", "FailureEndsOtherCalls", "FailureWhileSending", "StuckMPIThread", "MPIRun/mpich_operations_3",
			"NodesEqualNaiveOperations", "NodeBarrier", "NodeMessages", "Recorder", "RecorderKeepsTheFirstCause", "RecordAllReduce",
			"RingsEqualNaiveOperations", "RingOfManyPiecesInFlight", "RingEndsWithItsContext", "SentBetweenNodes", "SmallAgrees", "SmallFollowsDecision",
		},
		"collective/rendezvous": {
			"FloodOfStrangers", "FloodWhileTraining", "PendingConnections", "RanksJoinAndAddUp", "CancelEndsTheWait", "StrangersNeitherJoinNorDisturb",
			"ReplicasJoinAndAddUp", "DoorOfARing", "NeighboursThatDoNotMeet", "TLS", "Transports",
		},
		"data": {
			"LoaderWorkers", "LoaderErrorNamesSample", "LoaderCancel", "LoaderClose", "IteratorCloseWaits", "LoaderReusesBuffers", "LoaderKinds",
			"CrewStays", "InMemory", "SameBatches", "Canceled", "CanceledWhileGenerating", "TurnsOfVolumes", "Bytes", "Volumes",
		},
		"data/internal/filehash":      {"Sum"},
		"data/internal/localcopy":     {"Stage", "WaitEnds"},
		"engine/cpu":                  {"ManyThreads", "EarlyUpdate", "NetworksAreReproducible", "UNetIsReproducible", "Profile", "TraceAddsUp", "Statistics", "HostMemory"},
		"engine/cpu/internal/threads": {"Background", "FinishBackgroundWaits", "Group", "Synchronizations", "WaitsForGrandchildren", "Signal"},
		"launch": {
			"SweepTrainsEveryRunInTurn", "FailingRankEndsTheRunAndIsNamed", "CancelEndsWorkersInOrder", "Timeout", "UsageOfForeignProgram", "SweepsQueue",
			"TimeoutBeginsWithTheRun", "Watch", "WatchShowsTheSpeedupSoFar", "WaitForDerivedContext", "MPI", "Slurm", "SlurmArrayCancel", "SlurmInterruptedSubmission",
		},
		"logread":     {"Follow", "TreeOfAllKinds"},
		"monitor":     {"WithoutSensors", "UsageIsRecorded"},
		"notebook":    {"Go", "LiveReplacesItself", "TerminalHasOneContext", "InterruptInATerminal", "ProgressIsThrottled", "SurfaceFollowsThePlace"},
		"runs":        {"RaceForARun", "OneOwnerInOneProcess", "Heartbeat", "TakenOver", "Tail", "Growing"},
		"runs/flight": {"WriteAndRead", "CaptureStacks"},
		"strategy": {
			"AsyncPeerAnswersWhileItComputes", "AsyncServerStaleness", "AsynchronousStrategiesNameADeadRank", "CompressionResumes",
			"HorovodMakesTheMean", "DDPMakesTheMean", "BucketDoesNotWait", "ErrorStaysAndCloseEndsWhatWaits", "ExactStrategies", "LocalSGD", "DeadRankIsNamed",
			"NCCLWatch", "NCCLAbortWithGraphs", "NewNCCLTimeout", "NCCLWatchEnds", "OneBucketAtATime",
			"StatisticsTakeTheirTurn", "StatisticsErrorInBackward", "CloseEndsAWaitForStatistics", "StatisticsInATrace",
		},
		"train": {
			"AsynchronousTraining", "AsynchronousInterrupt", "Mirror", "SyncBatchNormReplicas", "PipelineInRunFolder", "FailingReplicaEndsItsProcess",
			"RecordsOfReplicas", "Profile", "CheckpointsEverySteps", "OwnedOnEveryRank", "WaitsForStragglers", "LocalSGDEqualsDDP", "HorovodTimeline",
			"StrategiesNameADeadRank", "TwoWorkers", "TrainTwice", "Accumulate", "CheckCanceled",
		},
		"train/internal/ranks": {"Agree"},
		"tune":                 {"TuneLoader", "RunTrials"},
	}
}

// allPhases returns all phases, those without a chain first. The phases of "jupyter" and "notebooks" and many
// tests wait for other programs, so that the others can compute meanwhile.
func allPhases() []phase {
	return []phase{
		{name: "gofmt", what: "all Go files are formatted", run: checkFormat},
		{name: "scripts", what: "shell and Python scripts have valid syntax", run: checkScripts},
		{name: "binaries", what: "the command and the kernel", run: buildBinaries},

		{name: "kernel", what: "the kernel, in a real Jupyter", run: runKernelTests, chain: "jupyter"},
		{name: "browser", what: "in Chromium: a sweep on a private Slurm cluster in the classic notebook, and JupyterLab's notebook", run: runBrowserTests, chain: "jupyter", strict: true},

		{name: "notebook", what: "the demo's notebook and, with --strict, every other one, run from top to bottom", run: runNotebooks, chain: "notebooks"},
		{name: "jupyterhub", what: "a JupyterHub with two students who train at the same time, and eight who share the cores", run: runHubTests, chain: "notebooks", strict: true},

		{name: "build", what: "everything builds without cgo", run: buildAll, chain: "checks"},
		{name: "vet", what: "go vet; with --strict only of the packages with assembly, because lint covers the others", run: runVet, chain: "checks"},
		{name: "platforms", what: "packages and tests have valid types for macOS and for arm64, or amd64 on an arm64 machine", run: checkOtherPlatforms, chain: "checks", strict: true},
		{name: "lint", what: "golangci-lint with .golangci.yml", run: runLinter, chain: "checks", strict: true},
		{name: "kernellint", what: "go vet and golangci-lint of the kernel", run: lintKernel, chain: "checks", strict: true},

		{name: "unit", what: "unit, property, golden and example tests; without --strict only the fast ones (go test -short)", run: runUnitTests, chain: "tests"},
		{name: "dp", what: "lockstep verify dp: 2 workers with ddp compute the same as one worker; with --strict, every strategy is a unit test", run: verifyDP, chain: "tests"},
		{name: "race", what: "race detector, for tests whose goroutines share data", run: runRaceTests, chain: "race", strict: true},
		{name: "neon", what: "tests of the NEON assembly, in qemu if this machine is not arm64; with --all, all of them", run: runNEONTests, chain: "race", strict: true},
	}
}

func buildAll(ctx context.Context, r *runner) error {
	return r.runCommand(ctx, nil, "go", "build", "./...")
}

func verifyDP(ctx context.Context, r *runner) error {
	return r.runCommand(ctx, nil, lockstepCommand, "verify", "dp", "--workers", "2")
}

const lockstepCommand = "kernels/.build/bin/lockstep"

func checkFormat(ctx context.Context, r *runner) error {
	files, err := listSources(".go")
	if err != nil {
		return err
	}
	root, err := captureOutput(ctx, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	out, err := captureOutput(ctx, filepath.Join(root, "bin", "gofmt"), append([]string{"-l"}, files...)...)
	if err != nil {
		return err
	}
	if out != "" {
		return fmt.Errorf("check format: run gofmt -w on %s", strings.Join(strings.Fields(out), ", "))
	}
	r.printLine(fmt.Sprintf("%d files", len(files)))
	return nil
}

// listSources returns the files of the checkout with one of the endings, without generated files and test data.
func listSources(endings ...string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(name, ".") && name != ".ci" || name == "testdata" || filepath.Dir(path) == "logs" && path != "logs/published" && path != "logs/recorded"):
			return filepath.SkipDir
		case d.Type().IsRegular() && slices.Contains(endings, filepath.Ext(name)):
			files = append(files, path)
		}
		return nil
	})
	return files, err
}

func checkScripts(ctx context.Context, r *runner) error {
	shell, err := listSources(".sh")
	if err != nil {
		return err
	}
	shell = append(shell, ".ci/run", "environment/archive/install", "environment/cluster", "environment/demo", "environment/gpu-check", "environment/jupyterhub/class-limits", "environment/release", "environment/test")
	for _, s := range shell {
		if err := r.runCommand(ctx, nil, "bash", "-n", s); err != nil {
			return err
		}
	}
	check := "import ast,sys; [ast.parse(open(f).read(), f) for f in sys.argv[1:]]"
	return r.runCommand(ctx, nil, pythonInterpreter(), "-c", check, "environment/execute-notebook", "environment/committed.py",
		"environment/jupyterhub/jupyterhub_config.py", "environment/jupyterhub/testdata/session.py")
}

// checkOtherPlatforms checks the types of everything for macOS and for arm64, or amd64 on an arm64 machine, and
// for that processor runs go vet on the packages with assembly.
func checkOtherPlatforms(ctx context.Context, r *runner) error {
	processor := "GOARCH=arm64"
	if runtime.GOARCH == "arm64" {
		processor = "GOARCH=amd64"
	}
	return errors.Join(
		r.checkTypes(ctx, "GOOS=darwin", "GOARCH=arm64"),
		r.checkTypes(ctx, "GOOS=linux", processor),
		r.vetAssembly(ctx, []string{"GOOS=linux", processor}),
	)
}

// runVet runs go vet on all packages or, if the linter does so too, on those with assembly.
func runVet(ctx context.Context, r *runner) error {
	if r.strict {
		return r.vetAssembly(ctx, nil)
	}
	return r.runCommand(ctx, nil, "go", "vet", "./...")
}

// vetAssembly runs go vet on the packages with assembly for any processor, because the linter does not compare
// assembly with its declarations in Go.
func (r *runner) vetAssembly(ctx context.Context, env []string) error {
	var packages []string
	list := func(line string) { packages = append(packages, strings.Fields(line)...) }
	if err := r.streamOutput(ctx, env, list, "go", "list", "-f", "{{if or .SFiles .IgnoredOtherFiles}}{{.ImportPath}}{{end}}", "./..."); err != nil {
		return err
	}
	r.printLine(strings.Join(packages, ", "))
	return r.runCommand(ctx, env, "go", append([]string{"vet"}, packages...)...)
}

func runLinter(ctx context.Context, r *runner) error {
	file, env, err := r.findLinter(ctx)
	if err != nil {
		return err
	}
	return r.runCommand(ctx, env, file, "run", allowOthers, "./...")
}

// allowOthers lets the linter run beside one of another checkout. Each checkout has its own cache.
const allowOthers = "--allow-parallel-runners"

// findLinter returns the path and the environment variables of the linter. It builds the version that
// environment/tools selects, unless it exists.
func (r *runner) findLinter(ctx context.Context) (file string, env []string, err error) {
	version, err := captureOutput(ctx, "go", "list", "-C", "environment/tools", "-m", "-f", "{{.Version}}", linter)
	if err != nil {
		return "", nil, err
	}
	goVersion, err := captureOutput(ctx, "go", "env", "GOVERSION")
	if err != nil {
		return "", nil, err
	}
	// A linter built with an older Go cannot read code for the current one, so the name contains both versions.
	file = absolutePath(filepath.Join(cache, "golangci-lint-"+version+"-"+goVersion))
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		r.printLine("building golangci-lint " + version)
		if err := r.runCommand(ctx, nil, "go", "build", "-C", "environment/tools", "-trimpath", "-ldflags=-s -w", "-o", file+".next", linter+"/cmd/golangci-lint"); err != nil {
			return "", nil, err
		}
		if err := os.Rename(file+".next", file); err != nil {
			return "", nil, err
		}
	}
	// Most of the linter's memory lives until its end, so that rarer garbage collection, until it has 3 GiB,
	// saves a seventh of its CPU time.
	return file, []string{"GOLANGCI_LINT_CACHE=" + absolutePath(filepath.Join(cache, "lint")), "GOGC=400", "GOMEMLIMIT=3GiB"}, nil
}

// buildBinaries builds the command and the kernel. It installs the kernel in kernelPrefix, and leaves the user's
// kernelspecs unchanged.
func buildBinaries(ctx context.Context, r *runner) error {
	if err := r.runCommand(ctx, nil, "go", "run", "./kernels/build"); err != nil {
		return err
	}
	if err := os.RemoveAll(kernelPrefix()); err != nil {
		return err
	}
	return r.runCommand(ctx, nil, lockstepCommand, "kernel", "install", "--prefix", kernelPrefix())
}

func kernelPrefix() string { return absolutePath(filepath.Join(cache, "prefix")) }

// jupyterEnv makes Jupyter find the kernel in kernelPrefix before any other of the same name.
func jupyterEnv() []string {
	return []string{"JUPYTER_PATH=" + filepath.Join(kernelPrefix(), "share", "jupyter")}
}

// hubPackage is the package with the tests of JupyterHub, which need the built kernel.
const hubPackage = module + "/environment/jupyterhub"

// runUnitTests runs all tests outside of kernels and environment/jupyterhub.
func runUnitTests(ctx context.Context, r *runner) error {
	out, err := captureOutput(ctx, "go", "list", "./...")
	if err != nil {
		return err
	}
	packages := slices.DeleteFunc(strings.Fields(out), func(p string) bool { return strings.HasPrefix(p+"/", module+"/kernels/") || p == hubPackage })
	return r.runGoTest(ctx, nil, append(overlapWaits(), packages...)...)
}

// overlapWaits returns flags for go test to test one package more than there are processors, and several tests of
// a package that call t.Parallel. Many tests only wait, for Slurm, a time-out or the end of a process.
func overlapWaits() []string {
	return []string{fmt.Sprint("-p=", runtime.NumCPU()+1), fmt.Sprint("-parallel=", 4*runtime.NumCPU())}
}

func runRaceTests(ctx context.Context, r *runner) error {
	var packages, names []string
	for path, tests := range raceTests() {
		packages = append(packages, "./pkg/"+path)
		names = append(names, tests...)
	}
	return r.runGoTest(ctx, []string{"CGO_ENABLED=1"}, slices.Concat([]string{"-race", "-run=" + testPattern(names)}, overlapWaits(), packages)...)
}

func testPattern(names []string) string {
	var patterns []string
	for _, n := range names {
		test, subtests, hasSubtests := strings.Cut(n, "/")
		if hasSubtests {
			subtests = "/(" + subtests + ")"
		}
		patterns = append(patterns, "^Test"+test+"$"+subtests)
	}
	slices.Sort(patterns)
	return strings.Join(slices.Compact(patterns), "|")
}

// runNEONTests runs tests of the CPU engine on arm64: all tests of its kernels, neonTests and, with --all,
// slowNEONTests. On another processor qemu emulates arm64, which is many times slower; without qemu, the phase is
// skipped.
func runNEONTests(ctx context.Context, r *runner) error {
	var env, emulator []string
	if runtime.GOARCH != "arm64" {
		program, err := findEmulator()
		if err != nil {
			r.addSkip(skippedTest{Name: module + "/environment/test.neon", Reason: err.Error()})
			return nil
		}
		env, emulator = []string{"GOOS=linux", "GOARCH=arm64"}, []string{"-exec=" + program + " -L " + arm64Root}
	}
	if err := r.runGoTest(ctx, env, append(emulator, "./pkg/engine/cpu/internal/kernel", "./pkg/engine/cpu/internal/conv", "./pkg/engine/cpu/internal/workspace")...); err != nil {
		return err
	}
	names, packages := neonTests(), []string{"./pkg/engine/cpu"}
	if r.all {
		names, packages = slices.Concat(names, slowNEONTests()), append(packages, "./pkg/train")
	}
	return r.runGoTest(ctx, env, slices.Concat(emulator, []string{"-run=" + testPattern(names)}, packages)...)
}

// neonTests returns the tests of the CPU engine that qemu runs in less than half a minute. They test single
// layers, and compare a whole U-Net with the reference engine.
func neonTests() []string {
	return []string{"InstructionSets", "Pointwise", "BatchNorm", "MaxPool", "Convolution", "UNetGradients"}
}

// slowNEONTests returns further tests of the CPU engine, and one of pkg/train about the instruction set in
// run.json. qemu runs them with --all.
func slowNEONTests() []string {
	return []string{"New", "Activations", "L1", "DiceBCE", "PixelCrossEntropy", "ConvTranspose", "ConvolutionProperty", "UNetIsReproducible", "ResumeInstructionSet"}
}

// arm64Root is where Debian installs the arm64 C library on other processors. The engine's test binaries need
// it, because they import packages that can open shared libraries.
const arm64Root = "/usr/aarch64-linux-gnu"

// findEmulator returns the path of qemu for arm64 Linux binaries, or an error if it or the arm64 C library is
// not installed.
func findEmulator() (string, error) {
	if _, err := os.Stat(filepath.Join(arm64Root, "lib", "ld-linux-aarch64.so.1")); err == nil {
		for _, name := range []string{"qemu-aarch64-static", "qemu-aarch64"} {
			if path, err := exec.LookPath(name); err == nil {
				return path, nil
			}
		}
	}
	return "", errors.New("no qemu-aarch64 or no C library for arm64 on this machine: install qemu-user-static and libc6-arm64-cross")
}

// kernelGenerated contains the files that the kernel is built with besides its own.
const kernelGenerated = "kernels/.build/gen/"

// runKernelTests runs the tests of the kernel's package and of the built kernel, except browserTests; without
// --strict, only a few. Results are never cached, because go test does not track the binaries.
func runKernelTests(ctx context.Context, r *runner) error {
	packages := "./kernels/..."
	selected := "-skip=" + testPattern(browserTests())
	if !r.strict {
		packages = "./kernels"
		selected = "-run=" + testPattern([]string{"Cells", "Interrupt", "ErrorEndsTheCell", "ExitEndsTheCell", "FigureShowsItself", "InstallPrintsWhereTheCommandIs"})
	}
	return errors.Join(
		// The kernel's own package exists only with the files of the overlay; vet cannot read them.
		r.runGoTest(ctx, nil, "-vet=off", "-overlay="+kernelGenerated+"overlay.json", "-modfile="+kernelGenerated+"go.mod", "-tags=notebook", "./"+kernelDir),
		r.runGoTest(ctx, jupyterEnv(), "-count=1", selected, fmt.Sprint("-parallel=", 2*runtime.NumCPU()), packages),
	)
}

func browserTests() []string { return []string{"Browser", "Lab"} }

// runBrowserTests runs browserTests, which are skipped without Chromium, its driver or a server: the classic
// notebook and Slurm, or jupyter-server.
func runBrowserTests(ctx context.Context, r *runner) error {
	return r.runGoTest(ctx, jupyterEnv(), "-count=1", "-run="+testPattern(browserTests()), "./kernels")
}

// runHubTests runs the tests of JupyterHub, which are skipped without it, and never cached, as the kernel's.
func runHubTests(ctx context.Context, r *runner) error {
	return r.runGoTest(ctx, nil, "-count=1", hubPackage)
}

// pythonInterpreter returns the Python with Jupyter that environment/test has found.
func pythonInterpreter() string {
	if p := os.Getenv("LOCKSTEP_PYTHON"); p != "" {
		return p
	}
	return "python3"
}

func absolutePath(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path // a relative path works as well
	}
	return filepath.Join(wd, path)
}
