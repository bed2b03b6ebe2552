//go:build linux && (amd64 || arm64)

package mpi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"lockstep/pkg/internal/clib"
)

// TestFindLauncher uses the variables that mpirun of Open MPI 4.1.4 and of MPICH 4.0.2, and
// srun of Slurm 22.05, set.
func TestFindLauncher(t *testing.T) {
	for _, c := range []struct {
		variables string
		want      clib.LibraryName
	}{
		{"", ""},
		{"RANK WORLD_SIZE SLURM_PROCID", ""},
		{"OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK PMIX_RANK", clib.OpenMPI},
		{"PMI_RANK PMI_SIZE", clib.MPICH},
		{"PMIX_RANK SLURM_PROCID", clib.OpenMPI},
		// mpirun of Open MPI inside a step of srun --mpi=pmi2.
		{"OMPI_COMM_WORLD_SIZE PMI_RANK", clib.OpenMPI},
	} {
		got := DetectImplementation(func(name string) string {
			for _, v := range strings.Fields(c.variables) {
				if v == name {
					return "0"
				}
			}
			return ""
		})
		if got != c.want {
			t.Errorf("with %q: got %q, want %q", c.variables, got, c.want)
		}
	}
}

// TestMissingLibrary checks that the error says which package to install, and does not list
// places that are only for CUDA.
func TestMissingLibrary(t *testing.T) {
	nothing := clib.NewSearch(clib.Environment{
		Getenv: func(string) string { return "" }, System: []string{t.TempDir()},
		Open: func(path string) (uintptr, error) { return 0, fmt.Errorf("%s: %w", path, fs.ErrNotExist) },
	})
	for name, want := range map[clib.LibraryName]string{clib.OpenMPI: "apt install openmpi-bin", clib.MPICH: "apt install mpich"} {
		_, err := Open(nothing, name)
		var missing *clib.NotFoundError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "CUDA") {
			t.Errorf("%s: error %v, want one with %q and without CUDA", name, err, want)
		}
	}
}

// openReal opens the library of this machine, or skips the test.
func openReal(t *testing.T, s *clib.Search, name clib.LibraryName) *Library {
	t.Helper()
	l, err := Open(s, name)
	var missing *clib.NotFoundError
	if errors.As(err, &missing) {
		t.Skipf("no %s on this machine", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestRealLibraries checks that the libraries of this machine have all functions, and that
// their versions can be read before Init.
func TestRealLibraries(t *testing.T) {
	for _, name := range []clib.LibraryName{clib.OpenMPI, clib.MPICH} {
		t.Run(string(name), func(t *testing.T) {
			l := openReal(t, clib.NewSearch(clib.Environment{}), name)
			if v := l.Version(); !strings.HasPrefix(v, string(name)) {
				t.Errorf("version %q", v)
			}
			t.Logf("%s: %s", l.Path, l.Version())
		})
	}
}

// TestOtherImplementation opens MPICH's library in place of Open MPI's, as an unsuitable
// LD_LIBRARY_PATH would do. MPICH lacks the variables that Open MPI's handles are.
func TestOtherImplementation(t *testing.T) {
	own := clib.NewSearch(clib.Environment{})
	handle := map[clib.LibraryName]string{}
	for _, name := range []clib.LibraryName{clib.OpenMPI, clib.MPICH} {
		handle[name] = openReal(t, own, name).Path
	}
	for name, other := range map[clib.LibraryName]clib.LibraryName{clib.OpenMPI: clib.MPICH, clib.MPICH: clib.OpenMPI} {
		e := clib.Environment{Open: openAlways(handle[other])}
		_, err := Open(clib.NewSearch(e), name)
		var version *clib.VersionError
		if !errors.As(err, &version) || version.Library != name || !strings.Contains(err.Error(), string(other)) {
			t.Errorf("%s instead of %s: error %v", other, name, err)
		}
	}
}

// openAlways returns a function that opens the library at path, whatever name it gets.
func openAlways(path string) func(string) (uintptr, error) {
	return func(string) (uintptr, error) { return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL) }
}

// TestHeaders compares the numbers of this package with those of the mpi.h of this machine.
func TestHeaders(t *testing.T) {
	h := mpichHandles()
	for _, c := range []struct {
		name    clib.LibraryName
		pattern string // of the folder with mpi.h
		numbers map[string]uintptr
	}{
		{clib.MPICH, "/usr/include/*/mpich", map[string]uintptr{
			"MPI_COMM_WORLD": h.world, "MPI_SUM": h.sum, "MPI_IN_PLACE": h.inPlace, "MPI_STATUS_IGNORE": h.ignoreStatus,
			"MPI_ERRORS_RETURN": h.returnErrors, "MPI_INFO_NULL": h.noInfo,
			"MPI_BYTE": h.types[Byte], "MPI_FLOAT": h.types[Float32], "MPI_DOUBLE": h.types[Float64],
			"MPI_THREAD_FUNNELED": threadFunneled, "sizeof(MPI_Request)": 4,
		}},
		// The other handles are addresses, which TestRealLibraries looks up.
		{clib.OpenMPI, "/usr/lib/*/openmpi/include", map[string]uintptr{
			"MPI_IN_PLACE": 1, "MPI_STATUS_IGNORE": 0, "MPI_THREAD_FUNNELED": threadFunneled, "sizeof(MPI_Request)": 8,
		}},
	} {
		t.Run(string(c.name), func(t *testing.T) {
			folders, err := filepath.Glob(c.pattern)
			if err != nil || len(folders) == 0 {
				t.Skipf("no mpi.h of %s on this machine", c.name)
			}
			cc, err := exec.LookPath("gcc")
			if err != nil {
				t.Skip("no gcc on this machine to read headers with")
			}
			dir := t.TempDir()
			var program strings.Builder
			program.WriteString("#include <mpi.h>\n#include <stdio.h>\nint main(void) {\n")
			for name := range c.numbers {
				if regexp.MustCompile(`COMM|SUM|ERRORS|INFO|BYTE|FLOAT|DOUBLE`).MatchString(name) {
					fmt.Fprintf(&program, "printf(\"%s %%zu\\n\", (size_t)(unsigned)%s);\n", name, name)
				} else {
					fmt.Fprintf(&program, "printf(\"%s %%zu\\n\", (size_t)%s);\n", name, name)
				}
			}
			for text, most := range map[string]int{"MPI_MAX_LIBRARY_VERSION_STRING": maxVersionBytes, "MPI_MAX_ERROR_STRING": maxErrorBytes} {
				fmt.Fprintf(&program, "if (%s > %d) return 1;\n", text, most)
			}
			program.WriteString("return sizeof(MPI_Request) > 8; }\n") // Request has 8 bytes
			source, binary := filepath.Join(dir, "numbers.c"), filepath.Join(dir, "numbers")
			if err := os.WriteFile(source, []byte(program.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(cc, "-I", folders[0], "-o", binary, source).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			out, err := exec.Command(binary).Output()
			if err != nil {
				t.Fatalf("a text or a request does not fit: %v", err)
			}
			for line := range strings.Lines(string(out)) {
				var name string
				var got uintptr
				if _, err := fmt.Sscan(line, &name, &got); err != nil || got != c.numbers[name] {
					t.Errorf("%s is %#x, want %#x (%v)", name, c.numbers[name], got, err)
				}
			}
		})
	}
}
