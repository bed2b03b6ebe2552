package model

// SideMultiple returns the number of which the height and width of the network's images must be a
// multiple. It returns 1 if c does not determine this number.
func (c Config) SideMultiple() int {
	if c.Kind == KindUNet2D && c.Depth > 0 && c.Depth <= maxUNetDepth {
		return 1 << c.Depth
	}
	return 1
}
