// Package fetch downloads public data sets. It continues interrupted downloads, verifies
// checksums, and unpacks archives.
//
// Only Get downloads anything. A file whose checksum differs is not used.
package fetch

import (
	"fmt"
	"strings"
)

// Set is a public data set.
type Set struct {
	Name   string // short name, which Lookup finds
	Title  string
	Kind   string // kind of the data, one of data.Kinds
	Source string // web page that describes the data set, and the source of the checksums
	Files  []File
	// Record is the number of a Zenodo record. If it is set, Get requests the names, sizes and
	// checksums of the files from Zenodo and ignores Files.
	Record string
}

// File is a file of a data set.
type File struct {
	Name string
	URL  string
	MD5  string // checksum of the complete file, 32 hexadecimal digits
	Size int64  // bytes; 0 if unknown
}

// Addresses of the sites from which data sets are downloaded.
const (
	cifarSite  = "https://www.cs.toronto.edu/~kriz/"
	zenodoSite = "https://zenodo.org"
)

// Sets returns the data sets that Get can download.
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

// Lookup returns the data set with the given name.
func Lookup(name string) (Set, error) {
	var names []string
	for _, s := range Sets() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Set{}, fmt.Errorf("unknown data set %q: use %s", name, strings.Join(names, ", "))
}
