// Package scale converts between bytes and float32 values.
package scale

// ToUnit contains b/255 for each byte b. A table lookup takes a third of the time of a division, and
// the loader's goroutines compete with training for processor time.
var ToUnit = newTable(255)

// ToFloat contains each byte converted to a float32.
var ToFloat = newTable(1)

func newTable(divisor float32) (t [256]float32) {
	for v := range t {
		t[v] = float32(v) / divisor
	}
	return t
}

// LookUp sets dst[i] to table[src[i]] for each byte of src.
func LookUp(dst []float32, src []uint8, table *[256]float32) {
	for x, v := range src[:len(dst)] {
		dst[x] = table[v]
	}
}

// FloatsToBytes converts values to bytes. It returns nil if a value is not an integer from 0 to 255.
func FloatsToBytes(values []float32) []uint8 {
	b := make([]uint8, len(values))
	for i, v := range values {
		if v >= 0 && v <= 255 {
			b[i] = uint8(v)
		}
		if float32(b[i]) != v {
			return nil
		}
	}
	return b
}

// UnitsToBytes returns the values times 255, or nil if one is not an integer from 0 to 255 divided by 255.
func UnitsToBytes(values []float32) []uint8 {
	b := make([]uint8, len(values))
	for i, v := range values {
		if v >= 0 && v <= 1 {
			b[i] = uint8(v*255 + 0.5)
		}
		if ToUnit[b[i]] != v {
			return nil
		}
	}
	return b
}

// ToUnits returns bytes divided by 255.
func ToUnits(bytes []uint8) []float32 {
	values := make([]float32, len(bytes))
	LookUp(values, bytes, &ToUnit)
	return values
}
