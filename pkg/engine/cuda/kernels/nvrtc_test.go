package kernels_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/nvrtc"
)

// fetched is where environment/test puts Debian's compiler.
const fetched = "../../../../environment/.cache/nvrtc/lib"

// openCompiler finds NVRTC: the one that a user names, the one that environment/test
// fetched, or one of the machine. It needs no GPU.
func openCompiler(t *testing.T) *nvrtc.Library {
	t.Helper()
	folder, err := filepath.Abs(fetched)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := nvrtc.Open(clib.NewSearch(clib.Environment{Getenv: func(name string) string {
		value := os.Getenv(name)
		if name == clib.LibraryPathVariable && value == "" {
			return folder
		}
		return value
	}}))
	var missing *clib.NotFoundError
	if errors.As(err, &missing) {
		t.Skip("no NVRTC on this machine: environment/test fetches Debian's (package libnvrtc11.2, non-free)")
	}
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

// generations are Ampere and Hopper. Compiled for sm_80, NVRTC gives the PTX of
// compute_80 and the machine code made of it.
var generations = []string{"80", "90"}

// binaries are what the compiler made of kernels for a generation.
type binaries struct {
	types   []kernels.ElementType   // nil for all
	outputs []nvrtc.CompiledProgram // one for each source
	err     error
}

// compiled compiles for each generation, once for all tests. For Hopper it compiles the whole
// source. For Ampere it compiles the units of bfloat16, with float32 beside it, each by itself
// and side by side, as the engine does. float16, which both generations compute alike, is left
// out there.
var compiled = map[string]func(*nvrtc.Library) binaries{
	"80": compileOnce("80", kernels.Units(kernels.F32, kernels.BF16), kernels.F32, kernels.BF16),
	"90": compileOnce("90", []kernels.Unit{{Name: "kernels.cu", Source: kernels.Source()}}),
}

func compileOnce(generation string, units []kernels.Unit, types ...kernels.ElementType) func(*nvrtc.Library) binaries {
	var once sync.Once
	b := binaries{types: types, outputs: make([]nvrtc.CompiledProgram, len(units))}
	return func(lib *nvrtc.Library) binaries {
		once.Do(func() {
			errs := make([]error, len(units))
			var all sync.WaitGroup
			for i, u := range units {
				all.Go(func() {
					b.outputs[i], errs[i] = lib.Compile(u.Source, u.Name, []string{"--gpu-architecture=sm_" + generation})
				})
			}
			all.Wait()
			b.err = errors.Join(errs...)
		})
		return b
	}
}

// compileFor returns what the compiler made for a generation, and the kernels that must be in it.
func compileFor(t *testing.T, lib *nvrtc.Library, generation string) ([]nvrtc.CompiledProgram, []kernels.Kernel) {
	t.Helper()
	b := compiled[generation](lib)
	if b.err != nil {
		t.Fatal(b.err)
	}
	for _, out := range b.outputs {
		if log := strings.Trim(out.Log, "\x00\n "); log != "" {
			t.Errorf("the compiler for sm_%s warns:\n%s", generation, log)
		}
	}
	return b.outputs, kernels.ListKernels(b.types...)
}

// entry is a kernel in PTX: its name, and its parameters between parentheses.
var entry = regexp.MustCompile(`(?s)\.visible \.entry (\w+)\((.*?)\)`)

// TestPTX compiles all kernels for the Hopper generation, and the kernels of one precision for
// Ampere. It compares names and parameters with the registry. Each kernel is in exactly one
// unit.
func TestPTX(t *testing.T) {
	lib := openCompiler(t)
	width := map[string]int{".u64": 8, ".u32": 4, ".f32": 4}
	for _, generation := range generations {
		t.Run("compute_"+generation, func(t *testing.T) {
			outputs, list := compileFor(t, lib, generation)
			got := map[string][]int{}
			for _, out := range outputs {
				text := string(out.PTX)
				if !strings.Contains(text, ".target sm_"+generation) {
					t.Errorf("the PTX is not for compute_%s", generation)
				}
				for _, m := range entry.FindAllStringSubmatch(text, -1) {
					var sizes []int
					for _, line := range strings.Split(strings.TrimSpace(m[2]), "\n") {
						kind := strings.Fields(line)[1]
						if width[kind] == 0 {
							t.Fatalf("%s: parameter of kind %s: %s", m[1], kind, line)
						}
						sizes = append(sizes, width[kind])
					}
					if got[m[1]] != nil {
						t.Errorf("%s is in two units", m[1])
					}
					got[m[1]] = sizes
				}
				if i := strings.Index(text, ".local "); i >= 0 {
					t.Errorf("an array lies in local memory: %.200s", text[i:])
				}
			}
			if len(got) != len(list) {
				t.Errorf("%d kernels in the PTX, %d in the registry", len(got), len(list))
			}
			for _, k := range list {
				var want []int
				for _, p := range k.Params {
					want = append(want, p.Kind.Bytes())
				}
				if !slices.Equal(got[k.Name], want) {
					t.Errorf("%s takes parameters of %v bytes, the registry packs %v", k.Name, got[k.Name], want)
				}
			}
		})
	}
}

// What a cubin's .nv.info sections say of a kernel: bytes of a thread's frame
// (spilled registers among them) and of its parameters. (The numbers of the
// attributes are those that cuobjdump -elf prints names for.)
const (
	infoFrameSize   = 0x11
	infoParamBank   = 0x0a
	infoRegisters   = 0x2f
	infoSized       = 0x04 // format: size, then so many bytes; others have their value in the size
	mostRegisters   = 128  // two blocks of 256 threads on a multiprocessor of 65536
	mostOfWideBlock = 64   // one block of 1024
)

// machineKernel is what the machine code of a kernel needs.
type machineKernel struct{ registers, frame, params int }

func readCubin(t *testing.T, cubin []byte) map[string]machineKernel {
	t.Helper()
	// A cubin's header has the toolkit's version where debug/elf wants a 1.
	cubin = bytes.Clone(cubin)
	binary.LittleEndian.PutUint32(cubin[20:], 1)
	f, err := elf.NewFile(bytes.NewReader(cubin))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]machineKernel{}
	for _, s := range f.Sections {
		if !strings.HasPrefix(s.Name, ".nv.info") {
			continue
		}
		b, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		for len(b) >= 4 {
			format, attribute, value := b[0], b[1], int(binary.LittleEndian.Uint16(b[2:]))
			b = b[4:]
			if format != infoSized {
				continue
			}
			body := b[:value]
			b = b[value:]
			switch attribute {
			case infoFrameSize, infoRegisters:
				name := symbols[binary.LittleEndian.Uint32(body)-1].Name // symbol 0 is not listed
				k := all[name]
				if n := int(binary.LittleEndian.Uint32(body[4:])); attribute == infoFrameSize {
					k.frame = n
				} else {
					k.registers = n
				}
				all[name] = k
			case infoParamBank:
				name := strings.TrimPrefix(s.Name, ".nv.info.")
				k := all[name]
				k.params = int(binary.LittleEndian.Uint16(body[6:]))
				all[name] = k
			}
		}
	}
	return all
}

// TestMachineCode compiles to machine code: no kernel spills registers to memory,
// none needs so many that too few threads fit, and the parameter bank has the size
// that the registry packs.
func TestMachineCode(t *testing.T) {
	lib := openCompiler(t)
	for _, generation := range generations {
		t.Run("sm_"+generation, func(t *testing.T) {
			outputs, list := compileFor(t, lib, generation)
			got := map[string]machineKernel{}
			for _, out := range outputs {
				maps.Copy(got, readCubin(t, out.CUBIN))
			}
			var table strings.Builder
			for _, k := range list {
				m, ok := got[k.Name]
				if !ok {
					t.Errorf("%s is not in the machine code", k.Name)
					continue
				}
				_, size := k.Offsets()
				if m.params != size {
					t.Errorf("%s has %d bytes of parameters, the registry packs %d", k.Name, m.params, size)
				}
				if m.frame != 0 {
					t.Errorf("%s keeps %d bytes a thread in memory", k.Name, m.frame)
				}
				most := mostRegisters
				if k.Name == "bn_finalize" || k.Name == "sum_chunks" {
					most = mostOfWideBlock
				}
				if m.registers == 0 || m.registers > most {
					t.Errorf("%s needs %d registers, at most %d are wanted", k.Name, m.registers, most)
				}
				table.WriteString(" " + k.Name + ":" + name(m.registers))
			}
			t.Logf("registers a thread:%s", table.String())
		})
	}
}
