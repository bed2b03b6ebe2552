package clib

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// LibraryPathVariable is the environment variable that lists the folders to search first.
const LibraryPathVariable = "LOCKSTEP_CUDA_PATH"

// Environment contains the functions by which a Search accesses the machine. A nil field means
// the environment of this process.
type Environment struct {
	Getenv func(string) string
	// Python returns the site-packages folders of python3.
	Python func(context.Context) ([]string, error)
	// System lists the folders that are searched last; nil means the usual system folders.
	System []string
	// Open opens a library by its path or its plain soname. The error wraps fs.ErrNotExist if there
	// is no such file. Lookup returns the address of a symbol in an open library.
	Open   func(path string) (uintptr, error)
	Lookup func(handle uintptr, symbol string) (uintptr, error)
}

func (e Environment) withDefaults() Environment {
	if e.Getenv == nil {
		e.Getenv = os.Getenv
	}
	if e.Python == nil {
		e.Python = findSitePackages
	}
	if e.System == nil {
		e.System = systemLibraryFolders()
	}
	if e.Open == nil {
		e.Open = dlopen
	}
	if e.Lookup == nil {
		e.Lookup = dlsym
	}
	return e
}

// Search finds libraries and opens each of them once. Several goroutines may use it.
type Search struct {
	env Environment

	mu     sync.Mutex
	places []SearchPlace // set by the first call of findSearchPlaces
	found  map[LibraryName]*openResult
	driver int // major CUDA version of the driver; 0: unknown
}

type openResult struct {
	lib *Library
	err error
}

// NewSearch returns a Search in env. It does not search until Open is called.
func NewSearch(env Environment) *Search {
	return &Search{env: env.withDefaults(), found: map[LibraryName]*openResult{}}
}

// PreferCUDA sets the major CUDA version that the driver supports. Open then tries libraries of
// this version or older in all places before newer ones, because the driver rejects the code of
// newer libraries. Libraries that are already open stay open.
func (s *Search) PreferCUDA(major int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.driver = major
}

// splitByDriverSupport divides the sonames of a library into two lists: versions that the driver
// supports, and newer versions. Both lists keep the order of sonames.
func (s *Search) splitByDriverSupport(sonames []string) [][]string {
	var fit, newer []string
	for _, name := range sonames {
		var major int
		_, version, _ := strings.Cut(name, ".so.")
		if _, err := fmt.Sscanf(version, "%d", &major); err == nil && s.driver > 0 && major > s.driver {
			newer = append(newer, name)
		} else {
			fit = append(fit, name)
		}
	}
	return [][]string{fit, newer}
}

// Open opens the libraries that n needs, and then n, unless n is open already. If n is not
// found or cannot be loaded, the error is a *NotFoundError that lists the places and the
// reasons. On systems where libraries cannot be called, it wraps ErrUnsupported.
func (s *Search) Open(n LibraryName) (*Library, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked(n)
}

// Places returns the places that Open searches, in order.
func (s *Search) Places() []SearchPlace {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.findSearchPlaces())
}

func (s *Search) openLocked(n LibraryName) (*Library, error) {
	if o := s.found[n]; o != nil {
		return o.lib, o.err
	}
	o := &openResult{}
	s.found[n] = o
	if !Supported {
		o.err = fmt.Errorf("open %s on %s/%s: %w", n, runtime.GOOS, runtime.GOARCH, ErrUnsupported)
		return nil, o.err
	}
	sp := searchSpecFor(n)
	if len(sp.sonames) == 0 {
		o.err = fmt.Errorf("open %s: unknown library", n)
		return nil, o.err
	}
	for _, need := range sp.needs {
		// Without a needed library, n can still be opened; the engines that need it fail
		// later.
		_, _ = s.openLocked(need)
	}
	if o.lib, o.err = s.findLibrary(n, sp); o.err == nil && sp.companions != "" {
		s.openCompanionFiles(o.lib, sp.companions)
	}
	return o.lib, o.err
}

// openCompanionFiles opens the files in l's folder whose names match pattern. l opens these files
// later by their plain names. The loader would not find them in l's folder, but it uses files
// that are already open.
func (s *Search) openCompanionFiles(l *Library, pattern string) {
	if !filepath.IsAbs(l.Path) {
		return // the loader has not reported l's path
	}
	files, err := filepath.Glob(filepath.Join(escapeGlob(filepath.Dir(l.Path)), pattern))
	if err != nil {
		return
	}
	for _, file := range files {
		// If a file cannot be opened, the call that needs it fails later.
		_, _ = s.env.Open(file)
	}
}

func (s *Search) findLibrary(n LibraryName, sp searchSpec) (*Library, error) {
	var broken []UnloadableFile
	try := func(path string) *Library {
		h, err := s.env.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			b := UnloadableFile{Path: s.findFileInLibraryPath(path), Reason: err.Error()}
			// The loader's path may contain the folder of the file, which is searched later.
			broken = slices.DeleteFunc(broken, func(o UnloadableFile) bool {
				return o.Reason == b.Reason && (o.Path == b.Path || o.Path == filepath.Base(b.Path))
			})
			broken = append(broken, b)
			return nil
		}
		if !filepath.IsAbs(path) {
			path = mappedLibraryPath(path)
		}
		return &Library{Name: n, Path: path, handle: h, lookup: s.env.Lookup}
	}
	var places []SearchPlace
	if sp.system {
		places = s.systemSearchPlaces()
	} else {
		places = s.findSearchPlaces()
	}
	if sp.toolkit {
		places = s.moveCUDNNFirst(places)
	}
	for _, sonames := range s.splitByDriverSupport(sp.sonames) {
		for _, place := range places {
			if l := findLibraryInPlace(place, sonames, try); l != nil {
				return l, nil
			}
		}
	}
	return nil, &NotFoundError{Library: n, Sonames: sp.sonames, Searched: slices.Clone(places), Advice: sp.advice, Broken: broken}
}

// findFileInLibraryPath returns the path of the file in LD_LIBRARY_PATH that the loader opens for the
// soname name. It returns name if there is no such file, or if name is already a path.
func (s *Search) findFileInLibraryPath(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	for _, dir := range filepath.SplitList(s.env.Getenv("LD_LIBRARY_PATH")) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return name
}

// findLibraryInPlace calls try for the files of the sonames in place, and returns the first library that
// can be opened, or nil.
func findLibraryInPlace(place SearchPlace, sonames []string, try func(path string) *Library) *Library {
	for _, soname := range sonames {
		if place.Source == loaderPathSource {
			if l := try(soname); l != nil {
				return l
			}
			continue
		}
		for _, dir := range place.Folders {
			path := filepath.Join(dir, soname)
			if _, err := os.Stat(path); err != nil {
				continue
			}
			if l := try(path); l != nil {
				return l
			}
		}
	}
	return nil
}

// moveCUDNNFirst moves the place that contains cuDNN before all others except LibraryPathVariable. cuDNN
// needs libraries of the CUDA version that it was built for, which are installed next to it. The
// loader's path may contain another version. For example, a cluster's module may provide CUDA 12
// while PyTorch is built for CUDA 13.
func (s *Search) moveCUDNNFirst(places []SearchPlace) []SearchPlace {
	has := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, searchSpecFor(CUDNN).sonames[0]))
		return err == nil
	}
	for i, place := range places {
		folders := place.Folders
		if place.Source == loaderPathSource {
			folders = filepath.SplitList(s.env.Getenv("LD_LIBRARY_PATH"))
		}
		if !slices.ContainsFunc(folders, has) {
			continue
		}
		if i > 1 {
			return slices.Concat(places[:1], places[i:i+1], places[1:i], places[i+1:])
		}
		break
	}
	return places
}

// loaderPathSource is the SearchPlace.Source of the folders that the dynamic loader itself searches.
const loaderPathSource = "the loader's path"

// findSearchPlaces returns the places to search, in order. It determines them in its first call.
func (s *Search) findSearchPlaces() []SearchPlace {
	if s.places != nil {
		return s.places
	}
	variable := func(name string, below ...string) SearchPlace {
		var dirs []string
		value := s.env.Getenv(name)
		for _, root := range filepath.SplitList(value) {
			for _, b := range below {
				dirs = append(dirs, filepath.Join(root, b))
			}
		}
		note := "not set"
		if value != "" {
			note = value + " contains no such folder"
		}
		return newSearchPlace(name, note, dirs)
	}
	python, note := s.findPythonFolders()
	system := s.systemSearchPlaces()
	s.places = []SearchPlace{
		variable(LibraryPathVariable, "", "lib", "lib64"),
		system[0],
		variable("CUDA_HOME", "lib64", "lib"),
		variable("CUDA_PATH", "lib64", "lib"),
		variable("CONDA_PREFIX", "lib"),
		newSearchPlace("Python's site-packages", note, wheelLibraryFolders(python)),
		system[1],
	}
	return s.places
}

func (s *Search) systemSearchPlaces() []SearchPlace {
	loader := SearchPlace{Source: loaderPathSource, Note: "LD_LIBRARY_PATH is not set"}
	if v := s.env.Getenv("LD_LIBRARY_PATH"); v != "" {
		loader.Note = "LD_LIBRARY_PATH=" + v
	}
	return []SearchPlace{loader, newSearchPlace("system folders", "none exists", s.env.System)}
}

// newSearchPlace returns a place with the folders in dirs that exist. If none exists, note is the
// place's Note.
func newSearchPlace(source, note string, dirs []string) SearchPlace {
	p := SearchPlace{Source: source}
	for _, dir := range dirs {
		// With a relative folder, the library would depend on the working directory.
		abs, err := filepath.Abs(dir)
		if err != nil || slices.Contains(p.Folders, abs) {
			continue
		}
		if info, err := os.Stat(abs); err == nil && info.IsDir() {
			p.Folders = append(p.Folders, abs)
		}
	}
	if len(p.Folders) == 0 {
		p.Note = note
	}
	return p
}

func systemLibraryFolders() []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	target := map[string]string{"amd64": "x86_64-linux", "arm64": "sbsa-linux"}[runtime.GOARCH]
	return []string{
		"/usr/local/cuda/lib64",
		"/usr/local/cuda/targets/" + target + "/lib",
		"/usr/local/cuda/extras/CUPTI/lib64",
		"/opt/cuda/lib64",
		"/usr/lib/" + triplet,
		"/usr/lib64",
		"/usr/local/nvidia/lib64",
		"/usr/lib/wsl/lib",
		"/usr/lib",
		"/usr/local/lib",
	}
}

// wheelLibraryFolders returns the library folders of NVIDIA's Python wheels and of PyTorch. The folders
// of wheels for CUDA 13 come first, then older layouts.
func wheelLibraryFolders(sitePackages []string) []string {
	var dirs []string
	for _, sp := range sitePackages {
		dirs = append(dirs, filepath.Join(sp, "nvidia", "cu13", "lib"))
		more, err := filepath.Glob(filepath.Join(escapeGlob(sp), "nvidia", "*", "lib"))
		if err == nil {
			dirs = append(dirs, more...)
		}
		dirs = append(dirs, filepath.Join(sp, "torch", "lib"))
	}
	return dirs
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
