package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/clib/nvrtc"
	"lockstep/pkg/internal/clib/stack"
)

// kernelCompiler compiles the kernels to machine code for one kind of GPU. This takes seconds, so
// it caches the machine code (called image) in memory and in a folder.
type kernelCompiler struct {
	nvrtc    *nvrtc.Library
	compiled *sync.Map // images that this process has compiled or read, by key
	folder   string    // empty: images are not cached on disk
	library  string    // identifies the compiler and its version
}

// newKernelCompiler returns a compiler that caches machine code in folder. It does not cache on
// disk if folder is empty or NVRTC is simulated.
func newKernelCompiler(s *stack.Stack, folder string) (*kernelCompiler, error) {
	major, minor, err := s.NVRTC.Version()
	if err != nil {
		return nil, err
	}
	c := &kernelCompiler{nvrtc: s.NVRTC, compiled: &s.Images, folder: folder}
	if info, err := os.Stat(s.NVRTC.Path); err == nil {
		c.library = fmt.Sprintf("NVRTC %d.%d, %d bytes", major, minor, info.Size())
	} else {
		c.folder = "" // a simulated compiler, whose images contain no code
	}
	return c, nil
}

// compile compiles units for a compute capability, such as 90 for 9.0. A compiler older
// than the GPU compiles to PTX for the newest architecture that it knows.
func (c *kernelCompiler) compile(units []kernels.Unit, capability int) ([][]byte, error) {
	images, err := c.compileUnits(units, fmt.Sprintf("--gpu-architecture=sm_%d", capability))
	if !errors.Is(err, nvrtc.ErrorInvalidOption) {
		return images, err
	}
	known, err := c.nvrtc.Architectures()
	if err != nil {
		return nil, err
	}
	best := 0
	for _, a := range known {
		if a <= capability {
			best = max(best, a)
		}
	}
	return c.compileUnits(units, fmt.Sprintf("--gpu-architecture=compute_%d", best))
}

// compileUnits compiles the units in parallel, at most one per processor at a time.
func (c *kernelCompiler) compileUnits(units []kernels.Unit, architecture string) ([][]byte, error) {
	images, errs := make([][]byte, len(units)), make([]error, len(units))
	slots := make(chan struct{}, runtime.NumCPU())
	var all sync.WaitGroup
	for i, u := range units {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			images[i], errs[i] = c.compileUnit(u, architecture)
		})
	}
	all.Wait()
	for _, err := range errs { // several units may have the same mistake: report it once
		if err != nil {
			return nil, err
		}
	}
	return images, nil
}

func (c *kernelCompiler) compileUnit(u kernels.Unit, architecture string) ([]byte, error) {
	options := []string{architecture, "--std=c++17"}
	sum := sha256.Sum256([]byte(c.library + "\n" + strings.Join(options, " ") + "\n" + u.Source))
	key := hex.EncodeToString(sum[:])
	if image, ok := c.compiled.Load(key); ok {
		return image.([]byte), nil
	}
	image := c.readMachineCode(key)
	if image == nil {
		out, err := c.nvrtc.Compile(u.Source, u.Name, options)
		if err != nil {
			return nil, err
		}
		image = out.LoadableImage()
		c.writeMachineCode(key, image)
	}
	c.compiled.Store(key, image)
	return image, nil
}

// machineCodePath returns the path of the cache file for key. The file contains a checksum and
// then the machine code.
func (c *kernelCompiler) machineCodePath(key string) string {
	return filepath.Join(c.folder, "kernels-"+key[:32]+".bin")
}

// readMachineCode returns the machine code that is cached for key, or nil if the file is
// missing or damaged.
func (c *kernelCompiler) readMachineCode(key string) []byte {
	if c.folder == "" {
		return nil
	}
	data, err := os.ReadFile(c.machineCodePath(key))
	if err != nil || len(data) <= sha256.Size {
		return nil
	}
	if sum := sha256.Sum256(data[sha256.Size:]); !bytes.Equal(sum[:], data[:sha256.Size]) {
		return nil
	}
	return data[sha256.Size:]
}

// writeMachineCode caches the machine code image for key. It ignores errors, because the next
// process then compiles the kernels again.
func (c *kernelCompiler) writeMachineCode(key string, image []byte) {
	if c.folder == "" || os.MkdirAll(c.folder, 0o755) != nil {
		return
	}
	f, err := os.CreateTemp(c.folder, ".kernels-*")
	if err != nil {
		return
	}
	sum := sha256.Sum256(image)
	_, err = f.Write(append(sum[:], image...))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), c.machineCodePath(key))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // a leftover file does no harm
	}
}
