package model

// SideMultiple returns what the height and width of the network's images must be multiples of; 1
// if c does not determine it.
func (c Config) SideMultiple() int {
	if c.Kind == KindUNet2D && c.Depth > 0 && c.Depth <= maxUNetDepth {
		return 1 << c.Depth
	}
	return 1
}
