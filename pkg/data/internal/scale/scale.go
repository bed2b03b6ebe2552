// Package scale converts between bytes and float32 values.
package scale

// ByteToUnit contains b/255 for each byte b. A table lookup takes a third of the time of a division, and
// the loader's goroutines compete with training for processor time.
var ByteToUnit = newByteTable(255)

// ByteToFloat contains each byte converted to a float32.
var ByteToFloat = newByteTable(1)

func newByteTable(divisor float32) (t [256]float32) {
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

// WholeFloatsToBytes converts values to bytes. It returns nil if a value is not an integer from 0 to 255.
func WholeFloatsToBytes(values []float32) []uint8 {
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

// UnitFloatsToBytes returns the values times 255, or nil if one is not an integer from 0 to 255 divided by 255.
func UnitFloatsToBytes(values []float32) []uint8 {
	b := make([]uint8, len(values))
	for i, v := range values {
		if v >= 0 && v <= 1 {
			b[i] = uint8(v*255 + 0.5)
		}
		if ByteToUnit[b[i]] != v {
			return nil
		}
	}
	return b
}

// BytesToUnitFloats returns bytes divided by 255.
func BytesToUnitFloats(bytes []uint8) []float32 {
	values := make([]float32, len(bytes))
	LookUp(values, bytes, &ByteToUnit)
	return values
}
