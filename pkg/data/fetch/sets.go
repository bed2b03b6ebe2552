// Package fetch downloads public data sets: by URL, goes on where an earlier
// download broke off, compares the checksum, and unpacks.
//
// Nothing is downloaded but by Get, and nothing is used whose checksum differs.
package fetch

import (
	"fmt"
	"strings"
)

// Set is a public data set.
type Set struct {
	Name   string // what Get is told
	Title  string
	Kind   string // of data.Config
	Source string // the page that describes it, and where its checksums stand
	Files  []File
	// Record is a record of Zenodo, whose files, sizes and checksums are asked for
	// when it is downloaded.
	Record string
}

// File is a file of a set.
type File struct {
	Name string
	URL  string
	MD5  string // of the whole file, 32 hexadecimal digits
	Size int64  // bytes; 0: not known
}

// Where the sets lie.
const (
	cifarSite  = "https://www.cs.toronto.edu/~kriz/"
	zenodoSite = "https://zenodo.org"
)

// Sets are the sets that Get knows.
func Sets() []Set {
	const cifar = cifarSite + "cifar.html"
	return []Set{
		{
			Name: "cifar10", Title: "CIFAR-10, binary version", Kind: "cifar10", Source: cifar + " (with MD5)",
			Files: []File{{Name: "cifar-10-binary.tar.gz", URL: cifarSite + "cifar-10-binary.tar.gz", MD5: "c32a1d4ab5d03f1284b67883e8d87530"}},
		},
		{
			Name: "cifar10-python", Title: "CIFAR-10, Python version", Kind: "cifar10", Source: cifar + " (with MD5)",
			Files: []File{{Name: "cifar-10-python.tar.gz", URL: cifarSite + "cifar-10-python.tar.gz", MD5: "c58f30108f718f92721af3b95e74349a"}},
		},
		{
			Name: "unet-cells", Title: "Microscope images and masks of the U-Net scaling study", Kind: "pairs",
			Source: "https://doi.org/10.5281/zenodo.7639190 (MD5 by Zenodo's interface)", Record: "7639190",
		},
	}
}

// Lookup is the set of a name.
func Lookup(name string) (Set, error) {
	var names []string
	for _, s := range Sets() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Set{}, fmt.Errorf("no data set is called %q: use %s", name, strings.Join(names, ", "))
}
