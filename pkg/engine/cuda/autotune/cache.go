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

// CacheVariable is the environment variable that names the folder of the tuning cache. The
// value "off" disables the cache.
const CacheVariable = "LOCKSTEP_TUNING_CACHE"

// cacheFormatVersion is the version of the format of tuning files. Files of other versions are
// ignored.
const cacheFormatVersion = 1

// Choice is the result of tuning one convolution: the plan that was chosen.
type Choice struct {
	Plan    string `json:"plan,omitempty"`    // serialized by cuDNN, which rejects it on another version or device
	Choices string `json:"choices,omitempty"` // engine and knobs, which identify the plan if cuDNN cannot serialize it
	Variant int    `json:"variant"`           // index of the plan's graph in Convolution.Graphs

	// The remaining fields, except Milliseconds, are only for people who read the file.
	Engine       int64   `json:"engine"`
	Mode         string  `json:"heuristic"`
	Workspace    int64   `json:"workspace_bytes"`
	Milliseconds float64 `json:"milliseconds"`      // measured time; 0: not timed
	Candidates   int     `json:"candidates"`        // number of plans that were timed
	Missing      string  `json:"missing,omitempty"` // why cuDNN had no plan for a variant
}

// TuningFile is a tuning file: the choices for one kind of device and one version of cuDNN.
type TuningFile struct {
	Format  int               `json:"format"`
	Key     string            `json:"key"` // library versions and device
	Choices map[string]Choice `json:"choices"`
}

// Cache stores choices in a tuning file, so that each convolution is tuned only once per
// machine. If choices cannot be read or written, the next process tunes them again.
type Cache struct {
	file string // path of the tuning file; empty: memory only
	key  string

	mu      sync.Mutex
	choices map[string]Choice
	saved   time.Time
}

// cacheSaveInterval limits how long Put keeps choices only in memory, so that a process killed
// while it tunes loses little work.
const cacheSaveInterval = 10 * time.Second

// CacheFolder returns the folder of tuning files. It returns "" if the cache is turned off or
// there is no suitable folder.
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

// OpenCache reads the tuning file for key, which names the device and the library versions,
// from dir. If dir is empty, the cache is kept in memory only.
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
	maps.Copy(c.choices, c.readChoices())
	return c
}

// readChoices returns the choices in the tuning file, or nil if the file is missing, damaged, or
// written for another format or key.
func (c *Cache) readChoices() map[string]Choice {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return nil
	}
	var t TuningFile
	if json.Unmarshal(text, &t) != nil || t.Format != cacheFormatVersion || t.Key != c.key {
		return nil
	}
	return t.Choices
}

// Get returns the choice for a convolution, if there is one.
func (c *Cache) Get(key string) (Choice, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.choices[key]
	return v, ok
}

// Put sets the choice for a convolution. It saves the file if the last save was more than
// cacheSaveInterval ago. It ignores a failure to save, whose only cost is that the next process
// tunes again.
func (c *Cache) Put(key string, v Choice) {
	c.mu.Lock()
	c.choices[key] = v
	due := time.Since(c.saved) > cacheSaveInterval
	c.mu.Unlock()
	if due {
		_ = c.Save()
	}
}

// Save writes the tuning file. It keeps the choices that other processes have saved in the
// meantime, and replaces the file by renaming a temporary file, so that readers never see a
// partial file.
func (c *Cache) Save() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved = time.Now()
	if c.file == "" {
		return nil
	}
	for k, v := range c.readChoices() {
		if _, ours := c.choices[k]; !ours {
			c.choices[k] = v
		}
	}
	text, err := json.MarshalIndent(TuningFile{cacheFormatVersion, c.key, c.choices}, "", " ")
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
