package autotune

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// CacheVariable is the environment variable that names the folder of the tuning cache;
// "off" keeps none.
const CacheVariable = "LOCKSTEP_TUNING_CACHE"

// cacheFormat is the version of the files; others are ignored.
const cacheFormat = 1

// Choice is the algorithm of one convolution, as tuning found it.
type Choice struct {
	Plan         string  `json:"plan,omitempty"`    // as cuDNN writes it; it refuses one of another version or device
	Choices      string  `json:"choices,omitempty"` // the engine and its knobs, which name it where cuDNN cannot write it
	Variant      int     `json:"variant"`           // of the ways to compute this convolution
	Engine       int64   `json:"engine"`            // for people, as what follows
	Mode         string  `json:"heuristic"`
	Workspace    int64   `json:"workspace_bytes"`
	Milliseconds float64 `json:"milliseconds"`      // when it was tuned; 0: not timed
	Candidates   int     `json:"candidates"`        // how many were timed
	Missing      string  `json:"missing,omitempty"` // why cuDNN had no plan for a variant
	// Of a batch norm that convolutions may apply (Variant 1: they do), which has no plan
	// of its own: what the other way took.
	Against float64 `json:"against_milliseconds,omitempty"`
}

// File is the tuning file of one kind of device and library.
type File struct {
	Format  int               `json:"format"`
	Key     string            `json:"key"` // library versions and device
	Choices map[string]Choice `json:"choices"`
}

// Cache keeps choices on disk, so that a shape is tuned once. It is an
// optimisation alone: what cannot be read counts as not there, what cannot be
// written is tuned again the next time.
type Cache struct {
	file string // empty: none
	key  string

	mu      sync.Mutex
	choices map[string]Choice
	saved   time.Time
}

// saveEvery is how long a choice waits for the file at most while others are made, so that
// a tuning that is ended goes on where it was.
const saveEvery = 10 * time.Second

// CacheFolder is where tuning files lie, or "" for none.
func CacheFolder(getenv func(string) string) string {
	switch dir := getenv(CacheVariable); dir {
	case "off":
		return ""
	case "":
		base, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		return filepath.Join(base, "lockstep", "tuning")
	default:
		return dir
	}
}

// OpenCache reads the tuning file of key below dir.
func OpenCache(dir, key string) *Cache {
	c := &Cache{key: key, choices: map[string]Choice{}, saved: time.Now()}
	if dir == "" {
		return c
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, key)
	c.file = filepath.Join(dir, name+".json")
	for k, v := range c.read() {
		c.choices[k] = v
	}
	return c
}

// read is what the file holds, nothing where it is missing, damaged, or of
// something else.
func (c *Cache) read() map[string]Choice {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return nil
	}
	var t File
	if json.Unmarshal(text, &t) != nil || t.Format != cacheFormat || t.Key != c.key {
		return nil
	}
	return t.Choices
}

// Get is the choice for a convolution.
func (c *Cache) Get(key string) (Choice, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.choices[key]
	return v, ok
}

// Put remembers a choice until Save, which it does itself now and then. A file that cannot
// be written costs time at the next start, no more.
func (c *Cache) Put(key string, v Choice) {
	c.mu.Lock()
	c.choices[key] = v
	due := time.Since(c.saved) > saveEvery
	c.mu.Unlock()
	if due {
		_ = c.Save()
	}
}

// Save writes the file: beside it, then renamed, so that a reader finds the old
// one or the new one. What other processes have written since is kept.
func (c *Cache) Save() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved = time.Now()
	if c.file == "" {
		return nil
	}
	for k, v := range c.read() {
		if _, ours := c.choices[k]; !ours {
			c.choices[k] = v
		}
	}
	text, err := json.MarshalIndent(File{cacheFormat, c.key, c.choices}, "", " ")
	if err != nil {
		return fmt.Errorf("save tuning cache: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o755); err != nil {
		return fmt.Errorf("save tuning cache: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(c.file), ".tuning-*")
	if err != nil {
		return fmt.Errorf("save tuning cache: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Chmod(fs.FileMode(0o644)), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), c.file)
	}
	if err != nil {
		return fmt.Errorf("save tuning cache: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// Choices returns a copy of all choices.
func (c *Cache) Choices() map[string]Choice {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.choices)
}
