package clib

import "slices"

// VersionCheck describes how to check the version of a library whose function table has type T.
// The zero VersionCheck accepts every version.
type VersionCheck[T any] struct {
	Symbol string         // the C function that returns the version
	Check  func(*T) error // returns an error if the version is not supported
}

// LoadFunctionTable opens library n and returns the table of its functions. bind creates the
// table: it gets the path of the library's file, and calls need for the address of each C
// function. The error is a *NotFoundError, a *VersionError or a *SymbolError.
func LoadFunctionTable[T any](s *Search, n LibraryName, bind func(path string, need func(symbol string) uintptr) *T, version VersionCheck[T]) (*T, error) {
	lib, err := s.Open(n)
	if err != nil {
		return nil, err
	}
	b := symbolResolver{lib: lib}
	table := bind(lib.Path, b.lookUp)
	// The version is checked first: a library that is too old lacks functions.
	if version.Check != nil && !slices.Contains(b.missing, version.Symbol) {
		if err := version.Check(table); err != nil {
			return nil, err
		}
	}
	if err := b.missingSymbolsError(); err != nil {
		return nil, err
	}
	return table, nil
}

// RequiredSymbols returns the names of the C functions that bind needs.
func RequiredSymbols[T any](bind func(path string, need func(symbol string) uintptr) *T) []string {
	var names []string
	bind("", func(name string) uintptr {
		names = append(names, name)
		return 0
	})
	return names
}

// symbolResolver looks up symbols and collects the missing ones, so that one error names all of them.
type symbolResolver struct {
	lib     *Library
	missing []string
}

// lookUp returns the address of symbol. If the library lacks it, lookUp returns 0 and adds it to
// b.missing.
func (b *symbolResolver) lookUp(symbol string) uintptr {
	p, err := b.lib.Symbol(symbol)
	if err != nil && !slices.Contains(b.missing, symbol) {
		b.missing = append(b.missing, symbol)
	}
	return p
}

// missingSymbolsError returns a *SymbolError that names every missing function, or nil.
func (b *symbolResolver) missingSymbolsError() error {
	if len(b.missing) == 0 {
		return nil
	}
	return &SymbolError{Library: b.lib.Name, Path: b.lib.Path, Symbols: b.missing}
}
