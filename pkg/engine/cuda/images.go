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

// compiler makes machine code of our kernels for one kind of device. It takes some
// seconds of a core, so that what was made is kept: in the process, and in a folder.
type compiler struct {
	nvrtc   *nvrtc.Library
	kept    *sync.Map // of this process, by key
	folder  string    // empty: none
	library string    // tells compilers apart
}

// newCompiler is the compiler of a stack; folder may be empty.
func newCompiler(s *stack.Stack, folder string) (*compiler, error) {
	major, minor, err := s.NVRTC.Version()
	if err != nil {
		return nil, err
	}
	c := &compiler{nvrtc: s.NVRTC, kept: &s.Images, folder: folder}
	if info, err := os.Stat(s.NVRTC.Path); err == nil {
		c.library = fmt.Sprintf("NVRTC %d.%d, %d bytes", major, minor, info.Size())
	} else {
		c.folder = "" // a simulated one, whose images are none
	}
	return c, nil
}

// images are the units' machine code for a compute capability (90 of 9.0); PTX where
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

// all compiles units side by side, as many as there are processors.
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
	for _, err := range errs { // of a mistake that many units share the first says enough
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

// file is where an image lies, behind its checksum.
func (c *compiler) file(key string) string {
	return filepath.Join(c.folder, "kernels-"+key[:32]+".bin")
}

// read is the image of a key, nil where there is none, or a damaged one.
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

// write keeps an image. What cannot be written is compiled again the next time.
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
		_ = os.Remove(f.Name()) // as above
	}
}
