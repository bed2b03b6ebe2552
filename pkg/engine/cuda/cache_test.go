package cuda

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
	a, b := openCache(dir, key), openCache(dir, key)
	one := choice{Plan: `{"engine":17}`, Variant: 1, Mode: "B", Engine: 17, Workspace: 1024, Milliseconds: 0.5, Candidates: 9}
	a.put("conv a", one)
	b.put("conv b", choice{Engine: 4})
	for _, c := range []*cache{a, b} {
		if err := c.save(); err != nil {
			t.Fatal(err)
		}
	}
	again := openCache(dir, key)
	if got, ok := again.get("conv a"); !ok || got != one {
		t.Errorf("conv a is %+v, %v", got, ok)
	}
	if got, ok := again.get("conv b"); !ok || got.Engine != 4 {
		t.Errorf("conv b is %+v, %v", got, ok)
	}
	if _, ok := openCache(dir, key+" other").get("conv a"); ok {
		t.Error("another library reads this one's choices")
	}
	// What this process chose is what it goes on with, whatever another one chose.
	own := choice{Plan: `{"engine":5}`, Engine: 5}
	again.put("conv b", own)
	if err := again.save(); err != nil {
		t.Fatal(err)
	}
	if got, _ := again.get("conv b"); got != own {
		t.Errorf("conv b is %+v after it was saved", got)
	}
	if got, _ := openCache(dir, key).get("conv b"); got != own {
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
		c := openCache(dir, key)
		if _, ok := c.get("conv a"); ok {
			t.Errorf("%q is taken for a choice", damage)
		}
		c.put("conv a", one)
		if err := c.save(); err != nil {
			t.Fatal(err)
		}
		if got, ok := openCache(dir, key).get("conv a"); !ok || got != one {
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
	if dir := cacheFolder(env("off")); dir != "" {
		t.Errorf("off is %q", dir)
	}
	if dir := cacheFolder(env("/somewhere")); dir != "/somewhere" {
		t.Errorf("the variable is overruled by %q", dir)
	}
	t.Setenv("XDG_CACHE_HOME", "/home/ada/.cache")
	if dir := cacheFolder(env("")); dir != "/home/ada/.cache/lockstep/tuning" {
		t.Errorf("the user's folder is %q", dir)
	}
	off := openCache("", "key")
	off.put("a", choice{Engine: 3})
	if v, ok := off.get("a"); !ok || v.Engine != 3 || off.save() != nil {
		t.Error("without a folder, choices do not last as long as the process")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := openCache(filepath.Join(file, "below"), "key").save(); err == nil || !strings.Contains(err.Error(), "save tuning cache") {
		t.Errorf("a folder that cannot be gives %v", err)
	}
}

// TestCacheSavesNowAndThen: a tuning that is ended before its time has left what it found.
func TestCacheSavesNowAndThen(t *testing.T) {
	dir := t.TempDir()
	c := openCache(dir, "key")
	c.put("first", choice{Plan: "a"})
	if c := openCache(dir, "key"); len(c.choices) != 0 {
		t.Error("every choice is written by itself")
	}
	c.saved = c.saved.Add(-2 * saveEvery)
	c.put("second", choice{Plan: "b"})
	if c := openCache(dir, "key"); len(c.choices) != 2 {
		t.Errorf("%d choices are on disk, want 2", len(c.choices))
	}
}
