package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// gpuTag links gorgonia.org/cu into the kernel. It must not be "cuda": that tag enables files of gorgonia
// itself that do not compile.
const gpuTag = "nvgpu"

const (
	gpuPackage = "gorgonia.org/cu"
	gpuVersion = "v0.9.5"

	// gpuHeader declares the driver's functions, in gorgonia.org/cu for its code generator: cuda.h of CUDA
	// 11 after the preprocessor. With it no CUDA toolkit is needed, and every machine compiles the same
	// code.
	gpuHeader = "cmd/genlib/cuda.h"
)

// A driver contains a C header and the source of a static library, with which gorgonia.org/cu is compiled
// and linked in place of CUDA's toolkit. The library forwards calls to the CUDA driver, if one is installed
// when the program starts.
//
// libcuda itself exists only on machines with a driver or a toolkit, and a program that is linked with it
// does not start without it. Besides, gorgonia.org/cu ends the process in an init function if the driver
// cannot be initialized.
type driver struct {
	header, source []byte
	dir            string // its name is a hash of the content, because Go caches cgo's results by the flags only
}

// newDriver generates the header and the library's source from gpuHeader in the module cache.
func newDriver(ctx context.Context, g goTool) (*driver, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("%s can be linked only on linux/amd64, not on %s/%s", gpuPackage, runtime.GOOS, runtime.GOARCH)
	}
	for _, program := range []string{"gcc", "ar"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("found no %s in PATH: run apt-get install gcc libc6-dev", program)
		}
	}
	version, dir, err := findModule(ctx, g, gpuPackage)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", gpuPackage, err)
	}
	if version != gpuVersion {
		return nil, fmt.Errorf("find %s: go.mod selects %s, but kernels/build/driver.go supports only %s", gpuPackage, version, gpuVersion)
	}
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(gpuHeader)))
	if err != nil {
		return nil, fmt.Errorf("read the driver's interface: %w", err)
	}
	var d driver
	if d.header, err = convertHeader(string(text)); err != nil {
		return nil, err
	}
	d.source = generateDriverSource(parseHeaderSymbols(string(d.header)))
	sum := sha256.Sum256(slices.Concat(d.header, d.source))
	d.dir = filepath.Join(g.dir, "kernels", ".build", "cuda-"+hex.EncodeToString(sum[:4]))
	return &d, nil
}

// env returns the environment variables by which cgo finds the header and the library. Their folders precede
// those that gorgonia.org/cu names, so that an installed toolkit has no effect.
func (d *driver) env() []string {
	cflags, isSet := os.LookupEnv("CGO_CFLAGS")
	if !isSet {
		cflags = "-O2"
	}
	return []string{
		"CGO_ENABLED=1",
		"CGO_CFLAGS=" + strings.TrimSpace("-I"+d.dir+" "+cflags),
		"CGO_LDFLAGS=" + strings.TrimSpace("-L"+d.dir+" -lcuda -ldl "+os.Getenv("CGO_LDFLAGS")),
	}
}

// buildTags returns tags with which Go's own code resolves host and user names, as in the kernel without
// cgo, so that half of the standard library need not be compiled again.
func (d *driver) buildTags() []string { return []string{"netgo", "osusergo"} }

// write writes the header and compiles the library.
func (d *driver) write(ctx context.Context) error {
	library := filepath.Join(d.dir, "libcuda.a")
	if isFile(library) {
		return nil
	}
	source, object, next := filepath.Join(d.dir, "libcuda.c"), filepath.Join(d.dir, "libcuda.o"), filepath.Join(d.dir, "libcuda.next")
	if err := errors.Join(
		writeIfChanged(filepath.Join(d.dir, "cuda.h"), d.header),
		writeIfChanged(source, d.source),
	); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"gcc", "-std=gnu11", "-O2", "-Wall", "-Werror", "-fPIC", "-c", "-o", object, source},
		{"ar", "rcs", next, object},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %s: %w\n%s", library, args[0], err, bytes.TrimSpace(out))
		}
	}
	if err := os.Rename(next, library); err != nil {
		return fmt.Errorf("build %s: %w", library, err)
	}
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// versionedSymbols lists the functions whose symbol in the driver differs from their name in cuda.h. The
// symbol without a suffix is an older version (mostly with 32-bit sizes). Source: the macros of cuda.h, CUDA
// 11.6.
const versionedSymbols = `
cuDeviceTotalMem_v2 cuCtxCreate_v2 cuModuleGetGlobal_v2 cuMemGetInfo_v2 cuMemAlloc_v2 cuMemAllocPitch_v2
cuMemFree_v2 cuMemGetAddressRange_v2 cuMemAllocHost_v2 cuMemHostGetDevicePointer_v2 cuMemcpyHtoD_v2
cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemcpyDtoA_v2 cuMemcpyAtoD_v2 cuMemcpyHtoA_v2 cuMemcpyAtoH_v2
cuMemcpyAtoA_v2 cuMemcpyHtoAAsync_v2 cuMemcpyAtoHAsync_v2 cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2
cuMemcpy3D_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpy2DAsync_v2
cuMemcpy3DAsync_v2 cuMemsetD8_v2 cuMemsetD16_v2 cuMemsetD32_v2 cuMemsetD2D8_v2 cuMemsetD2D16_v2
cuMemsetD2D32_v2 cuArrayCreate_v2 cuArrayGetDescriptor_v2 cuArray3DCreate_v2 cuArray3DGetDescriptor_v2
cuTexRefSetAddress_v2 cuTexRefGetAddress_v2 cuGraphicsResourceGetMappedPointer_v2 cuCtxDestroy_v2
cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuStreamDestroy_v2 cuEventDestroy_v2 cuTexRefSetAddress2D_v3
cuLinkCreate_v2 cuLinkAddData_v2 cuLinkAddFile_v2 cuMemHostRegister_v2 cuGraphicsResourceSetMapFlags_v2
cuStreamBeginCapture_v2 cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2
cuDevicePrimaryCtxSetFlags_v2 cuIpcOpenMemHandle_v2 cuGraphInstantiate_v2`

// convertHeader makes gpuHeader compile: it removes the parts of C's own headers, which the preprocessor has
// inserted, and adds the macros that it has removed.
func convertHeader(text string) ([]byte, error) {
	const first = "typedef uint32_t cuuint32_t;\n"
	_, rest, ok := strings.Cut(text, first)
	if !ok {
		return nil, fmt.Errorf("read the driver's interface: %s of %s has no line %q", gpuHeader, gpuPackage, strings.TrimSpace(first))
	}
	declared := map[string]bool{}
	for _, m := range declaration.FindAllStringSubmatch(rest, -1) {
		declared[m[1]] = true
	}
	var b bytes.Buffer
	b.WriteString("/* Written by kernels/build from " + gpuHeader + " of " + gpuPackage + ". */\n#pragma once\n#include <stdint.h>\n#include <stdlib.h>\n\n")
	for symbol := range strings.FieldsSeq(versionedSymbols) {
		name := symbol[:strings.LastIndex(symbol, "_v")]
		if !declared[name] {
			return nil, fmt.Errorf("read the driver's interface: %s of %s does not declare %s", gpuHeader, gpuPackage, name)
		}
		fmt.Fprintf(&b, "#define %s %s\n", name, symbol)
	}
	b.WriteString("#define CU_TRSF_READ_AS_INTEGER 0x01\n#define CU_TRSF_NORMALIZED_COORDINATES 0x02\n\n" + first + rest)
	return b.Bytes(), nil
}

var (
	declaration = regexp.MustCompile(`(?m)^(?:__attribute__\(\(deprecated\)\) )?CUresult\s+(cu\w+)\(`)
	macro       = regexp.MustCompile(`(?m)^#define (cu\w+) (cu\w+)$`)
)

// parseHeaderSymbols returns the sorted symbols of a header's functions.
func parseHeaderSymbols(header string) []string {
	symbol := map[string]string{}
	for _, m := range macro.FindAllStringSubmatch(header, -1) {
		symbol[m[1]] = m[2]
	}
	var list []string
	for _, m := range declaration.FindAllStringSubmatch(header, -1) {
		if s := symbol[m[1]]; s != "" {
			list = append(list, s)
		} else {
			list = append(list, m[1])
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// generateDriverSource returns the library's source in C. Every function jumps to the address in its entry
// of a table, without touching the arguments, so that their types need not be known. cuInit, which
// gorgonia.org/cu calls first, fills the table.
func generateDriverSource(symbols []string) []byte {
	var b bytes.Buffer
	b.WriteString(driverSourceHead)
	symbols = slices.DeleteFunc(slices.Clone(symbols), func(s string) bool { return s == "cuInit" })
	b.WriteString("\nstatic const char *const names[] = {\n")
	for _, s := range symbols {
		fmt.Fprintf(&b, "\t%q,\n", s)
	}
	fmt.Fprintf(&b, "};\n\nenum { count = %d };\n\n__attribute__((visibility(\"hidden\"))) function lockstep_driver[count] = {[0 ... count - 1] = refuse};\n", len(symbols))
	b.WriteString(driverSourceInit)
	for i, s := range symbols {
		fmt.Fprintf(&b, "JUMP(%s, %d)\n", s, i)
	}
	return b.Bytes()
}

const driverSourceHead = `/* Written by kernels/build: the CUDA driver, opened when the program starts. */
#include <dlfcn.h>
#include <stddef.h>

typedef int (*function)(void);

/* Results of the driver's functions. */
enum { no_device = 100, not_supported = 801 };

/* The result of every function while there is no working driver. */
static int reason = no_device;

static int refuse(void) { return reason; }
static int missing(void) { return not_supported; }
`

const driverSourceInit = `
static void *open_driver(void) {
	/* The loader finds an installed driver; containers mount it in other folders. */
	static const char *const files[] = {
		"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1",
	};
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		void *handle = dlopen(files[i], RTLD_NOW | RTLD_GLOBAL);
		if (handle != NULL) return handle;
	}
	return NULL;
}

/* Returns 0 in any case, because gorgonia.org/cu ends the process otherwise. If the driver
   is missing or cannot be initialized, the later calls return the error. */
int cuInit(unsigned int flags) {
	void *handle = open_driver();
	if (handle == NULL) return 0;
	int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(handle, "cuInit");
	int result = init == NULL ? not_supported : init(flags);
	if (result != 0) {
		reason = result;
		return 0;
	}
	for (int i = 0; i < count; i++) {
		function f = (function)dlsym(handle, names[i]);
		lockstep_driver[i] = f == NULL ? missing : f;
	}
	return 0;
}

#define JUMP(name, index) __asm__( \
	".text\n.globl " #name "\n.type " #name ", @function\n.p2align 4\n" \
	#name ":\n\tjmp *lockstep_driver+8*" #index "(%rip)\n.size " #name ", .-" #name "\n");

`
