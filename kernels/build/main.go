// Command build builds the two binaries that a notebook needs: lockstep-kernel, the
// Jupyter kernel with all packages that a cell can import compiled in, and lockstep, the
// command that the workers of a run execute.
//
//	go run ./kernels/build [-o DIR] [-tags nvgpu] [-add PATH,...] [-packages PATH,...]
//
// First it generates a registration for every package that a cell can import. Then it writes an overlay,
// which adds the files of gophernotes to kernels/lockstep-kernel and replaces the files of the interpreter
// gomacro, both with kernels/patches applied. Finally it compiles the binaries. All generated files are in
// kernels/.build, which git and "go build ./..." ignore. If nothing has changed since the last run, the
// command does nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	modulePath  = "lockstep"
	kernelPath  = modulePath + "/kernels/lockstep-kernel"
	commandPath = modulePath + "/pkg/cmd/lockstep"
	idSymbol    = modulePath + "/pkg/internal/buildid.ID"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintf(os.Stderr, "kernels/build: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	out      string   // folder of the binaries
	tags     string   // extra build tags
	packages []string // replace the default list of packages
	add      []string // added to the list of packages
	force    bool
	kernel   bool // build only the kernel, not the command
	printID  bool
}

func parseOptions(args []string) (options, error) {
	var o options
	var packages, add string
	fs := flag.NewFlagSet("kernels/build", flag.ContinueOnError)
	fs.StringVar(&o.out, "o", "", "folder for the binaries (default kernels/.build/bin)")
	fs.StringVar(&o.tags, "tags", "", "extra build tags, such as nvgpu, which links "+gpuPackage+" (needs gcc)")
	fs.StringVar(&add, "add", "", "more packages for a cell to import, comma-separated; their modules must be in go.mod")
	fs.StringVar(&packages, "packages", "", "packages or patterns to import instead of the default list, comma-separated")
	fs.BoolVar(&o.force, "f", false, "build even if nothing has changed")
	fs.BoolVar(&o.kernel, "kernel", false, "build the kernel alone, without the lockstep command")
	fs.BoolVar(&o.printID, "id", false, "print the build id of the sources and build nothing")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see -help", fs.Arg(0))
	}
	if slices.Contains(splitList(o.tags), "cuda") {
		return o, fmt.Errorf("-tags cuda enables files of gorgonia that do not compile: to link gorgonia.org/cu use -tags %s", gpuTag)
	}
	o.packages, o.add = splitList(packages), splitList(add)
	return o, nil
}

func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

func run(ctx context.Context, args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	b, err := newBuild(ctx, o)
	if err != nil {
		return err
	}
	if o.printID {
		fmt.Println(b.id)
		return nil
	}
	begin := time.Now()
	if !o.force && b.stamp.isCurrent(b.outputFiles()) {
		fmt.Printf("kernel is up to date: %s (build %s)\n", b.kernelFile(), b.id)
		return nil
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return fmt.Errorf("create folder for the binaries: %w", err)
	}
	if err := b.runSteps(ctx); err != nil {
		return err
	}
	if err := b.stamp.write(b.outputFiles()); err != nil {
		return err
	}
	fmt.Printf("built %s (build %s) in %s\n", strings.Join(b.outputFiles(), " and "), b.id, formatSeconds(begin))
	return nil
}

type build struct {
	options
	goTool
	id      string
	stamp   stamp
	command bool    // also build pkg/cmd/lockstep
	driver  *driver // for a kernel with gorgonia.org/cu; nil without it
}

// newBuild prepares a build. It compiles nothing.
func newBuild(ctx context.Context, o options) (*build, error) {
	g := goTool{env: append(os.Environ(), "CGO_ENABLED=0")}
	out, err := g.run(ctx, "list", "-m", "-f", "{{.Path}}\n{{.Dir}}")
	if err != nil {
		return nil, fmt.Errorf("find module: %w", err)
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if path != modulePath {
		return nil, fmt.Errorf("find module: this folder belongs to module %q: run the command inside module %q", path, modulePath)
	}
	g.dir = dir
	var gpu *driver
	if slices.Contains(splitList(o.tags), gpuTag) {
		if gpu, err = newDriver(ctx, g); err != nil {
			return nil, fmt.Errorf("build with -tags %s: %w", gpuTag, err)
		}
		o.tags = strings.Join(append(splitList(o.tags), gpu.buildTags()...), ",")
		g.env = append(g.env, gpu.env()...)
	}
	if o.out == "" {
		o.out = filepath.Join(dir, "kernels", ".build", "bin")
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return nil, fmt.Errorf("resolve folder for the binaries: %w", err)
	}
	id, err := computeBuildID(dir)
	if err != nil {
		return nil, err
	}
	goEnv, err := g.run(ctx, "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOFLAGS", "GOEXPERIMENT", "CGO_ENABLED", "CGO_CFLAGS", "CGO_LDFLAGS")
	if err != nil {
		return nil, fmt.Errorf("read go env: %w", err)
	}
	// The method compile passes these flags in any case.
	goEnv = strings.NewReplacer("-trimpath", "", "-buildvcs=false", "").Replace(goEnv)
	_, err = os.Stat(filepath.Join(dir, "pkg", "cmd", "lockstep"))
	return &build{
		options: o, goTool: g, id: id, command: err == nil && !o.kernel, driver: gpu,
		stamp: newStamp(o.out, id, strings.Join(strings.Fields(goEnv), " "),
			"tags "+o.tags, "packages "+strings.Join(o.packages, " "), "add "+strings.Join(o.add, " ")),
	}, nil
}

func (b *build) kernelFile() string  { return filepath.Join(b.out, "lockstep-kernel") }
func (b *build) commandFile() string { return filepath.Join(b.out, "lockstep") }

func (b *build) outputFiles() []string {
	if b.command {
		return []string{b.kernelFile(), b.commandFile()}
	}
	return []string{b.kernelFile()}
}

func (b *build) runSteps(ctx context.Context) error {
	begin := time.Now()
	if b.driver != nil {
		if err := b.driver.write(ctx); err != nil {
			return err
		}
	}
	kernelDir := filepath.Join(b.dir, "kernels", "lockstep-kernel")
	gen := "gen"
	if b.driver != nil {
		gen += "-" + gpuTag // builds with and without the tag keep separate files
	}
	ov := newOverlay(filepath.Join(b.dir, "kernels", ".build", gen))
	dir, err := findGophernotes(ctx, b.goTool)
	if err != nil {
		return err
	}
	changes, err := b.readPatches("gophernotes")
	if err != nil {
		return err
	}
	if err := ov.addGophernotes(dir, kernelDir, changes); err != nil {
		return err
	}
	modfile, err := b.addInterpreter(ctx, ov)
	if err != nil {
		return err
	}
	paths, err := b.listImportPaths(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("1/3 registrations of %d packages (the first build takes minutes) ... ", len(paths))
	if err := b.registerAll(ctx, ov, kernelDir, paths); err != nil {
		fmt.Println("failed")
		return err
	}
	overlayFile, err := ov.write()
	if err != nil {
		return err
	}
	fmt.Println(formatSeconds(begin))

	if err := b.compile(ctx, "2/3 lockstep-kernel", b.kernelFile(), kernelPath, modfile, "-overlay", overlayFile, "-tags", b.kernelTags()); err != nil {
		return err
	}
	if !b.command {
		fmt.Println("3/3 lockstep ... skipped")
		return nil
	}
	// The workers' program does not depend on the GPU package in the notebook's kernel.
	b.env = append(slices.Clone(b.env), "CGO_ENABLED=0")
	return b.compile(ctx, "3/3 lockstep", b.commandFile(), commandPath)
}

func (b *build) kernelTags() string {
	return strings.Join(append([]string{"notebook"}, splitList(b.tags)...), ",")
}

// compile builds one binary under a temporary name and then renames it, so that a running kernel keeps its
// old binary.
func (b *build) compile(ctx context.Context, label, file, pkg string, flags ...string) error {
	begin := time.Now()
	fmt.Printf("%s ... ", label)
	next := file + ".next"
	// The build id identifies the sources, and git refuses to describe another user's folder.
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X " + idSymbol + "=" + b.id, "-o", next}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir, cmd.Env = b.dir, b.env
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Println("failed")
		return fmt.Errorf("compile %s: %w\n%s", pkg, err, strings.TrimSpace(string(out)))
	}
	if err := os.Rename(next, file); err != nil {
		return fmt.Errorf("compile %s: %w", pkg, err)
	}
	fmt.Println(formatSeconds(begin))
	return nil
}

func formatSeconds(since time.Time) string {
	return fmt.Sprintf("%.1f s", time.Since(since).Seconds())
}
