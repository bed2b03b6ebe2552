package hostsim

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/ebitengine/purego"

	"lockstep/pkg/engine/cuda/kernels"
)

//go:embed host.h
var hostHeaderSource string

//go:embed simulate.h
var simulatorSource string

// compilerFlags are the options of g++. Undefined behavior traps instead of using a runtime
// library. Contraction is off, so that fused multiply-adds occur only where the source has
// them.
var compilerFlags = []string{
	"-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing",
	"-ffp-contract=off", "-U_FORTIFY_SOURCE",
	"-fsanitize=alignment,null,bounds,shift,signed-integer-overflow,integer-divide-by-zero,float-cast-overflow",
	"-fsanitize-undefined-trap-on-error",
}

// buildLibrary compiles source with g++ and extraFlags to a shared library and loads it. If the
// library is in the user's cache folder, it is not compiled again.
func buildLibrary(ctx context.Context, source string, list []kernels.Kernel, extraFlags ...string) (*kernelLibrary, error) {
	compiler, err := exec.LookPath("g++")
	if err != nil {
		return nil, ErrNoCompiler
	}
	version, err := exec.CommandContext(ctx, compiler, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("get version of %s: %w", compiler, err)
	}
	var text strings.Builder
	text.WriteString(hostHeaderSource + source + simulatorSource + "static const SimEntry sim_entries[] = {\n")
	for _, k := range list {
		fmt.Fprintf(&text, "  sim_make(%q, %s),\n", k.Name, k.Name)
	}
	text.WriteString("};\nstatic const SimEntry *sim_find(const char *name) {\n  for (const SimEntry &e : sim_entries)\n    if (!strcmp(e.name, name)) return &e;\n  return 0;\n}\n")

	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find cache folder: %w", err)
	}
	folder := filepath.Join(cache, "lockstep", "hostsim")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("create cache folder: %w", err)
	}
	h := sha256.New()
	options := append(slices.Clone(compilerFlags), extraFlags...)
	for _, part := range []string{text.String(), strings.Join(options, " "), string(version), runtime.GOARCH} {
		fmt.Fprintf(h, "%d %s", len(part), part)
	}
	file := filepath.Join(folder, hex.EncodeToString(h.Sum(nil))[:32]+".so")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		if err := compileLibrary(ctx, compiler, options, text.String(), file); err != nil {
			return nil, err
		}
	}
	return loadLibrary(file)
}

// compileLibrary writes the shared library file by renaming a complete temporary file, so
// that two test binaries can compile at the same time.
func compileLibrary(ctx context.Context, compiler string, options []string, text, file string) error {
	next, err := os.CreateTemp(filepath.Dir(file), "next-*.so")
	if err != nil {
		return fmt.Errorf("compile kernels: %w", err)
	}
	defer os.Remove(next.Name()) //nolint:errcheck // it has been renamed, or is incomplete
	if err := next.Close(); err != nil {
		return fmt.Errorf("compile kernels: %w", err)
	}
	cmd := exec.CommandContext(ctx, compiler, append(options, "-o", next.Name(), "-x", "c++", "-", "-lm", "-lpthread")...)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("compile kernels with %s: %w\n%.2000s", compiler, err, out)
	}
	if err := os.Rename(next.Name(), file); err != nil {
		return fmt.Errorf("compile kernels: %w", err)
	}
	return nil
}

func loadLibrary(file string) (*kernelLibrary, error) {
	handle, err := purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load compiled kernels: %w", err)
	}
	var lib kernelLibrary
	purego.RegisterLibFunc(&lib.runKernel, handle, "sim_run")
	purego.RegisterLibFunc(&lib.paramSizes, handle, "sim_params")
	return &lib, nil
}
