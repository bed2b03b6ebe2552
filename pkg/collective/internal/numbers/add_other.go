//go:build !amd64

package numbers

func addVectors[T Number](_, _, _ []T) int { return 0 }
