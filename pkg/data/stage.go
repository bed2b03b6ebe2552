package data

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"lockstep/pkg/data/internal/classlist"
	"lockstep/pkg/data/internal/localcopy"
	"lockstep/pkg/data/internal/picture"
)

// Staged is a copy of a config's data files in a folder of this machine.
type Staged struct {
	Config Config        // the config, with the paths of the copy
	Dir    string        // folder of the copy
	Bytes  int64         // total size of the files
	Took   time.Duration // duration of copying; 0 if another process made the copy
	Copied bool          // whether this process made the copy

	copy *localcopy.Copy
}

// Stage copies the data files of c into the folder c.Stage. If another process on this machine has
// made a copy or is making one, Stage waits if necessary and uses that copy. The caller must call
// Staged.Close after use. The last process that closes a copy removes it. If all its users were
// killed, the next process that stages data in the same folder removes it.
func Stage(ctx context.Context, c Config) (*Staged, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	folder, err := expandCopyFolder(c.Stage)
	if err != nil {
		return nil, err
	}
	if c.Kind == KindImageNet {
		if err := checkListedPathsRelative(c.Path); err != nil {
			return nil, err
		}
	}
	sources := []string{c.Path}
	if c.TestPath != "" {
		sources = append(sources, c.TestPath)
	}
	copied, err := localcopy.Open(ctx, folder, sources)
	if err != nil {
		return nil, err
	}
	s := &Staged{Config: c, Dir: copied.Dir(), Bytes: copied.Bytes, Took: copied.Took, Copied: copied.Copied, copy: copied}
	s.Config.Path, s.Config.Stage = copied.SourcePath(0), ""
	if c.TestPath != "" {
		s.Config.TestPath = copied.SourcePath(1)
	}
	return s, nil
}

// Close releases the copy, and removes it if no other process uses it. Data opened from the copy
// must not be read afterwards.
func (s *Staged) Close() error {
	if s == nil {
		return nil
	}
	return s.copy.Close()
}

// String describes the copy: its folder, its size, and how long copying took.
func (s *Staged) String() string {
	mib := float64(s.Bytes) / (1 << 20)
	if s.Copied {
		return fmt.Sprintf("data staged to %s: %.1f MiB copied in %.2f s", s.Dir, mib, s.Took.Seconds())
	}
	return fmt.Sprintf("data staged to %s: %.1f MiB, copied by another process", s.Dir, mib)
}

// expandCopyFolder expands environment variables in a folder's path. It returns an error if a
// variable is not set or the result is relative.
func expandCopyFolder(folder string) (string, error) {
	var missing string
	path := os.Expand(folder, func(name string) string {
		v := os.Getenv(name)
		if v == "" {
			missing = name
		}
		return v
	})
	switch {
	case missing != "":
		return "", fmt.Errorf("stage data to %s: $%s is not set on this machine: set it, or name a folder such as /dev/shm in data.stage", folder, missing)
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("stage data to %s: %s is not an absolute path: name a folder such as /dev/shm in data.stage", folder, path)
	}
	return path, nil
}

// checkListedPathsRelative returns an error if the ImageNet list in dir contains absolute paths, because
// they would refer to the original files, not the copy.
func checkListedPathsRelative(dir string) error {
	file := filepath.Join(dir, "train_data.pkl")
	text, err := picture.ReadFile(context.Background(), dir, file)
	if err != nil {
		return fmt.Errorf("stage data: %w", err)
	}
	paths, _, err := classlist.Read(text)
	if err != nil {
		return fmt.Errorf("stage data: %s: %w", file, err)
	}
	for _, path := range paths {
		if filepath.IsAbs(path) {
			return fmt.Errorf("stage data: %s contains absolute paths such as %s, which do not refer to the copy: make the paths relative, or leave data.stage out", file, path)
		}
	}
	return nil
}
