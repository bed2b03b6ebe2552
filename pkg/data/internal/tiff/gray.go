package tiff

// IsGray reports whether the page has gray values, without colors, palette or transparency.
func (p Page) IsGray() bool {
	return p.fieldValue(tagSamples, 1) == 1 && p.fieldValue(tagPhotometric, blackIsZero) <= blackIsZero
}
