package clib

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnsupported reports that C libraries cannot be called on this system without cgo. Errors of
// Search.Open wrap it.
var ErrUnsupported = errors.New("calling C libraries works on linux/amd64 and linux/arm64 only")

// NotFoundError reports that no file of a library was found, or that none can be loaded. It lists
// the places that were searched.
type NotFoundError struct {
	Library  LibraryName
	Sonames  []string // the accepted file names
	Searched []SearchPlace
	Advice   string           // the remedy if there is no file
	Broken   []UnloadableFile // files that were found, but cannot be loaded
}

// UnloadableFile is a library file that was found but cannot be loaded.
type UnloadableFile struct {
	Path   string // the plain file name if it is not known where the loader found the file
	Reason string // the loader's own words
}

// String returns the path and the reason. It omits the path if the reason already begins with it.
func (b UnloadableFile) String() string {
	if strings.HasPrefix(b.Reason, b.Path+":") {
		return b.Reason
	}
	return b.Path + ": " + b.Reason
}

func (b UnloadableFile) advice() string {
	if strings.Contains(b.Reason, "cannot open shared object file: No such file") { // a library that b needs
		return fmt.Sprintf("install the missing library, load the cluster's module for it, or add its folder to LD_LIBRARY_PATH (ldd %s lists what it needs)", b.Path)
	}
	return "install a version that fits this machine"
}

// SearchPlace describes where a library was searched: the folders from one source, such as an
// environment variable.
type SearchPlace struct {
	Source  string   `json:"source"`  // "LOCKSTEP_CUDA_PATH", "the loader's path", …
	Folders []string `json:"folders"` // folders that exist and were searched
	Note    string   `json:"note,omitempty"`
}

func (p SearchPlace) String() string {
	switch {
	case len(p.Folders) > 0 && p.Note != "":
		return fmt.Sprintf("%s: %s (%s)", p.Source, strings.Join(p.Folders, ", "), p.Note)
	case len(p.Folders) > 0:
		return fmt.Sprintf("%s: %s", p.Source, strings.Join(p.Folders, ", "))
	}
	return fmt.Sprintf("%s (%s)", p.Source, p.Note)
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	problem, advice := e.Describe()
	fmt.Fprintf(&b, "open %s: %s: %s; searched:", e.Library, problem, advice)
	for i, p := range e.Searched {
		if i > 0 {
			b.WriteString(";")
		}
		b.WriteString(" " + p.String())
	}
	return b.String()
}

// Describe returns the problem, as words that follow the library's name, and what the user can do
// about it.
func (e *NotFoundError) Describe() (problem, advice string) {
	if len(e.Broken) == 0 {
		return fmt.Sprintf("not found (%s)", strings.Join(e.Sonames, " or ")), e.Advice
	}
	files := make([]string, len(e.Broken))
	for i, b := range e.Broken {
		files[i] = b.String()
	}
	return "found but not loadable: " + strings.Join(files, "; "), e.Broken[0].advice()
}

// SymbolError reports that a library lacks functions: it is too old, or it is a different
// library with the same file name.
type SymbolError struct {
	Library LibraryName
	Path    string
	Symbols []string
}

func (e *SymbolError) Error() string {
	kind := "function"
	if len(e.Symbols) > 1 {
		kind = "functions"
	}
	variable := LibraryPathVariable
	if searchSpecFor(e.Library).system {
		variable = "LD_LIBRARY_PATH"
	}
	return fmt.Sprintf("bind %s (%s): it has no %s %s: it is too old, or a different library with the same file name; install a newer one or name its folder in %s",
		e.Library, e.Path, kind, strings.Join(e.Symbols, ", "), variable)
}

// VersionError reports that the version of a library or of the driver is not supported.
type VersionError struct {
	Library LibraryName
	Path    string
	Have    string
	Want    string // "12.0 or newer"
	Advice  string
}

func (e *VersionError) Error() string {
	where := ""
	if e.Path != "" {
		where = " (" + e.Path + ")"
	}
	return fmt.Sprintf("check %s%s: its version is %s, %s is needed: %s", e.Library, where, e.Have, e.Want, e.Advice)
}
