package autotune

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCache: what is saved is read again, by the same key alone; what another
// process saved in between stays; a damaged file counts as none and is
// written anew.
func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "below")
	const key = "cudnn 9.19.0, NVIDIA H200 (sm_90)"
	a, b := OpenCache(dir, key), OpenCache(dir, key)
	one := Choice{Plan: `{"engine":17}`, Variant: 1, Mode: "B", Engine: 17, Workspace: 1024, Milliseconds: 0.5, Candidates: 9}
	a.Put("conv a", one)
	b.Put("conv b", Choice{Engine: 4})
	for _, c := range []*Cache{a, b} {
		if err := c.Save(); err != nil {
			t.Fatal(err)
		}
	}
	again := OpenCache(dir, key)
	if got, ok := again.Get("conv a"); !ok || got != one {
		t.Errorf("conv a is %+v, %v", got, ok)
	}
	if got, ok := again.Get("conv b"); !ok || got.Engine != 4 {
		t.Errorf("conv b is %+v, %v", got, ok)
	}
	if _, ok := OpenCache(dir, key+" other").Get("conv a"); ok {
		t.Error("another library reads this one's choices")
	}
	// What this process chose is what it goes on with, whatever another one chose.
	own := Choice{Plan: `{"engine":5}`, Engine: 5}
	again.Put("conv b", own)
	if err := again.Save(); err != nil {
		t.Fatal(err)
	}
	if got, _ := again.Get("conv b"); got != own {
		t.Errorf("conv b is %+v after it was saved", got)
	}
	if got, _ := OpenCache(dir, key).Get("conv b"); got != own {
		t.Errorf("conv b is saved as %+v", got)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if name := files[0].Name(); strings.ContainsAny(name, " ,()/") {
		t.Errorf("the file is named %q", name)
	}
	for _, damage := range []string{"", "{", `{"format":99,"key":"` + key + `","choices":{"conv a":{"engine":1}}}`, `{"format":1,"key":"x","choices":{"conv a":{"engine":1}}}`, `[]`} {
		if err := os.WriteFile(a.file, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		c := OpenCache(dir, key)
		if _, ok := c.Get("conv a"); ok {
			t.Errorf("%q is taken for a choice", damage)
		}
		c.Put("conv a", one)
		if err := c.Save(); err != nil {
			t.Fatal(err)
		}
		if got, ok := OpenCache(dir, key).Get("conv a"); !ok || got != one {
			t.Errorf("after %q the file is not written anew", damage)
		}
	}
}

// TestCacheFolder: the variable moves it or switches it off; a folder that
// cannot be written is an error of save alone.
func TestCacheFolder(t *testing.T) {
	env := func(v string) func(string) string {
		return func(name string) string {
			if name != CacheVariable {
				t.Errorf("asks for %s", name)
			}
			return v
		}
	}
	if dir := CacheFolder(env("off")); dir != "" {
		t.Errorf("off is %q", dir)
	}
	if dir := CacheFolder(env("/somewhere")); dir != "/somewhere" {
		t.Errorf("the variable is overruled by %q", dir)
	}
	t.Setenv("XDG_CACHE_HOME", "/home/ada/.cache")
	if dir := CacheFolder(env("")); dir != "/home/ada/.cache/lockstep/tuning" {
		t.Errorf("the user's folder is %q", dir)
	}
	off := OpenCache("", "key")
	off.Put("a", Choice{Engine: 3})
	if v, ok := off.Get("a"); !ok || v.Engine != 3 || off.Save() != nil {
		t.Error("without a folder, choices do not last as long as the process")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := OpenCache(filepath.Join(file, "below"), "key").Save(); err == nil || !strings.Contains(err.Error(), "save tuning cache") {
		t.Errorf("a folder that cannot be gives %v", err)
	}
}

// TestCacheSavesNowAndThen: a tuning that is ended before its time has left what it found.
func TestCacheSavesNowAndThen(t *testing.T) {
	dir := t.TempDir()
	c := OpenCache(dir, "key")
	c.Put("first", Choice{Plan: "a"})
	if c := OpenCache(dir, "key"); len(c.choices) != 0 {
		t.Error("every choice is written by itself")
	}
	c.saved = c.saved.Add(-2 * cacheSaveInterval)
	c.Put("second", Choice{Plan: "b"})
	if c := OpenCache(dir, "key"); len(c.choices) != 2 {
		t.Errorf("%d choices are on disk, want 2", len(c.choices))
	}
}
