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

// compiler compiles our kernels to machine code for one kind of device. This takes some
// seconds, so the machine code is kept in the process and in a folder.
type compiler struct {
	nvrtc   *nvrtc.Library
	kept    *sync.Map // machine code that this process has compiled, by key
	folder  string    // empty: nothing is kept on disk
	library string    // identifies the compiler and its version
}

// newCompiler returns a compiler that uses s's NVRTC. If folder is empty, nothing is kept
// on disk.
func newCompiler(s *stack.Stack, folder string) (*compiler, error) {
	major, minor, err := s.NVRTC.Version()
	if err != nil {
		return nil, err
	}
	c := &compiler{nvrtc: s.NVRTC, kept: &s.Images, folder: folder}
	if info, err := os.Stat(s.NVRTC.Path); err == nil {
		c.library = fmt.Sprintf("NVRTC %d.%d, %d bytes", major, minor, info.Size())
	} else {
		c.folder = "" // a simulated compiler, whose images contain no code
	}
	return c, nil
}

// images returns the units' machine code for a compute capability (90 for 9.0), or PTX if
// the compiler is older than the device.
func (c *compiler) images(units []kernels.Unit, capability int) ([][]byte, error) {
	images, err := c.all(units, fmt.Sprintf("--gpu-architecture=sm_%d", capability))
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
	return c.all(units, fmt.Sprintf("--gpu-architecture=compute_%d", best))
}

// all compiles units in parallel, as many at a time as there are processors.
func (c *compiler) all(units []kernels.Unit, architecture string) ([][]byte, error) {
	images, errs := make([][]byte, len(units)), make([]error, len(units))
	places := make(chan struct{}, runtime.NumCPU())
	var all sync.WaitGroup
	for i, u := range units {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			images[i], errs[i] = c.one(u, architecture)
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

func (c *compiler) one(u kernels.Unit, architecture string) ([]byte, error) {
	options := []string{architecture, "--std=c++17"}
	sum := sha256.Sum256([]byte(c.library + "\n" + strings.Join(options, " ") + "\n" + u.Source))
	key := hex.EncodeToString(sum[:])
	if image, ok := c.kept.Load(key); ok {
		return image.([]byte), nil
	}
	image := c.read(key)
	if image == nil {
		out, err := c.nvrtc.Compile(u.Source, u.Name, options)
		if err != nil {
			return nil, err
		}
		image = out.Image()
		c.write(key, image)
	}
	c.kept.Store(key, image)
	return image, nil
}

// file returns the path of an image. The file contains a checksum followed by the image.
func (c *compiler) file(key string) string {
	return filepath.Join(c.folder, "kernels-"+key[:32]+".bin")
}

// read returns the image for a key, or nil if the file is missing or damaged.
func (c *compiler) read(key string) []byte {
	if c.folder == "" {
		return nil
	}
	data, err := os.ReadFile(c.file(key))
	if err != nil || len(data) <= sha256.Size {
		return nil
	}
	if sum := sha256.Sum256(data[sha256.Size:]); !bytes.Equal(sum[:], data[:sha256.Size]) {
		return nil
	}
	return data[sha256.Size:]
}

// write stores an image in the folder. If that fails, the image is compiled again the next
// time.
func (c *compiler) write(key string, image []byte) {
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
		err = os.Rename(f.Name(), c.file(key))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // a leftover file does no harm
	}
}
