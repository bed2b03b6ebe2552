package scan

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Parsing numbers takes most of the time of reading a log. Numbers in the usual
// form of a program's output, with at most 19 digits and no exponent, are
// parsed here, eight digits at once. strconv parses all others. FuzzDecimal and
// TestDecimal compare the results with strconv's bit by bit.

// ParseDecimal parses the number at the beginning of b, with optional sign and
// point, and returns its length n. n is 0 if b does not begin with a number, or
// if the number has a form that only strconv can parse.
//
// It is optimized for numbers whose point is among the first eight characters:
// without the point, their digits fit into one or two machine words. Bytes of
// the buffer after the end of b may be loaded, but do not affect the result.
func ParseDecimal(b []byte) (v float64, n int) {
	w := b[:cap(b)]
	if len(w) < 24 {
		return parseDecimalSlowly(b)
	}
	x := binary.LittleEndian.Uint64(w) ^ asciiZeros
	k := countDigits(x)
	if k == 0 || k == 8 || k >= len(b) || w[k] != '.' {
		return parseWithoutPoint(b, x, k)
	}
	rest := binary.LittleEndian.Uint64(w[8:]) ^ asciiZeros
	whole := uint64(1)<<(8*k&63) - 1
	x = x&whole | (x>>8|rest<<56)&^whole
	count := countDigits(x)
	if n = count + 1; count == k || n > len(b) {
		return parseDecimalSlowly(b)
	}
	if count < 8 {
		if n < len(b) && w[n] >= 'E' && continuesNumber(b[n:]) {
			return 0, 0
		}
		return float64(int64(parseEightDigits(x<<((64-8*count)&63)))) / floatPowersOfTen[(count-k)&7], n
	}
	mantissa := parseEightDigits(x)
	x = rest>>8 | (binary.LittleEndian.Uint64(w[16:])^asciiZeros)<<56
	more := countDigits(x)
	n += more
	mantissa = mantissa*powersOfTen[more&15] + parseEightDigits(x<<(64-8*more))
	if more == 8 && n < len(b) && IsDigit(w[n]) { // as Python prints a float
		if len(w) < 25 {
			return parseDecimalSlowly(b)
		}
		x = binary.LittleEndian.Uint64(w[17:]) ^ asciiZeros
		if more = countDigits(x); more > 3 {
			return parseDecimalSlowly(b)
		}
		n += more
		mantissa = mantissa*powersOfTen[more&3] + parseEightDigits(x<<((64-8*more)&63))
		if mantissa > 0 && n <= len(b) && (n == len(b) || w[n] < 'E') {
			// Some such numbers are exact in a float and some are not; a branch
			// would be mispredicted.
			return divideByReciprocal(mantissa, n-1-k), n
		}
	}
	if n > len(b) {
		return parseDecimalSlowly(b)
	}
	if n < len(b) && w[n] >= 'E' && continuesNumber(b[n:]) {
		return 0, 0
	}
	if mantissa < 1<<53 { // as in quotient
		return float64(int64(mantissa)) / floatPowersOfTen[n-1-k], n
	}
	return divideByPowerOfTen(mantissa, n-1-k), n
}

// parseWithoutPoint is the part of ParseDecimal for numbers that begin with k
// digits that no point follows. x contains the first eight bytes, XORed with
// asciiZeros.
func parseWithoutPoint(b []byte, x uint64, k int) (v float64, n int) {
	switch k = min(k, len(b)); {
	case k == 8 || k < len(b) && b[k] == '.':
		return parseDecimalSlowly(b)
	case k == 0:
		if len(b) == 0 || b[0] != '-' && b[0] != '+' {
			return 0, 0
		}
		return parseDecimalSlowly(b)
	case k < len(b) && b[k] >= 'E' && continuesNumber(b[k:]):
		return 0, 0
	}
	return float64(int64(parseEightDigits(x << ((64 - 8*k) & 63)))), k
}

// ParseShortInteger parses an integer of one to seven digits and returns the
// number of its digits. n is 0 if b does not begin with such an integer, or if
// fewer than eight bytes can be loaded.
func ParseShortInteger(b []byte) (v, n int) {
	w := b[:cap(b)]
	if len(w) < 8 {
		return 0, 0
	}
	x := binary.LittleEndian.Uint64(w) ^ asciiZeros
	if n = countDigits(x); n == 0 || n >= 8 || n > len(b) {
		return 0, 0
	}
	return int(parseEightDigits(x << ((64 - 8*n) & 63))), n
}

// ParseLongInteger parses an integer of one to fifteen digits and returns the
// number of its digits. n is 0 if b does not begin with such an integer, or if
// fewer than 16 bytes can be loaded.
func ParseLongInteger(b []byte) (v, n int) {
	w := b[:cap(b)]
	if len(w) < 16 {
		return 0, 0
	}
	x := binary.LittleEndian.Uint64(w) ^ asciiZeros
	if n = countDigits(x); n == 0 || n > len(b) {
		return 0, 0
	}
	if n < 8 {
		return int(parseEightDigits(x << ((64 - 8*n) & 63))), n
	}
	rest := binary.LittleEndian.Uint64(w[8:]) ^ asciiZeros
	more := countDigits(rest)
	if n += more; more == 8 || n > len(b) {
		return 0, 0
	}
	// If more is 0, rest must be shifted by 64 bits. Two shifts are faster than
	// one, for which Go would add a test for shifts by 64 or more.
	return int(parseEightDigits(x)*powersOfTen[more] + parseEightDigits(rest<<8<<(56-8*more))), n
}

// asciiZeros is the word "00000000". XOR with it turns a digit into its value,
// and any other byte into a value above 9.
const asciiZeros = 0x3030303030303030

// countDigits returns the number of digits at the beginning of a word that was
// XORed with asciiZeros.
func countDigits(x uint64) int {
	// The sum sets the highest bit of each byte whose value is above 9. A carry
	// from such a byte changes only later bytes, which do not matter.
	return bits.TrailingZeros64(((x+0x7676767676767676)|x)&0x8080808080808080) / 8
}

// continuesNumber reports whether b, which follows digits, continues a number
// that only strconv can parse, for example with an exponent.
func continuesNumber(b []byte) bool { return IsLetter(b[0]) && startsExponentOrHex(b) || b[0] == '_' }

// parseDecimalSlowly is the slow path of ParseDecimal, which parses digit by
// digit.
func parseDecimalSlowly(b []byte) (v float64, n int) {
	negative := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		n = 1
	}
	first := n
	mantissa, n := appendDigits(b, n, 0)
	count, power := n-first, 0
	if n < len(b) && b[n] == '.' {
		point := n + 1
		mantissa, n = appendDigits(b, point, mantissa)
		power = n - point
		count += power
	}
	if count == 0 || count > 19 { // with 20 the mantissa may not fit into 64 bits
		return 0, 0
	}
	if n < len(b) && continuesNumber(b[n:]) {
		return 0, 0
	}
	v = divideByPowerOfTen(mantissa, power)
	if negative {
		v = -v
	}
	return v, n
}

// appendDigits appends the digits at the beginning of b[n:] to the decimal
// number mantissa. It returns the new mantissa and the index after the digits.
// The mantissa overflows if it has more than 19 digits.
func appendDigits(b []byte, n int, mantissa uint64) (uint64, int) {
	for len(b)-n >= 8 {
		x := binary.LittleEndian.Uint64(b[n:]) ^ asciiZeros
		k := countDigits(x)
		if k < 8 { // the shift adds zeros before the digits
			return mantissa*powersOfTen[k] + parseEightDigits(x<<(64-8*k)), n + k
		}
		mantissa = mantissa*1e8 + parseEightDigits(x)
		n += 8
	}
	for ; n < len(b) && IsDigit(b[n]); n++ {
		mantissa = mantissa*10 + uint64(b[n]-'0')
	}
	return mantissa, n
}

// parseEightDigits returns the number with the eight digits in x, the first
// digit in the lowest byte. Three multiplications combine pairs of digits, then
// groups of four, then all eight (Lemire, Number Parsing at a Gigabyte per
// Second, 2021, section 4).
func parseEightDigits(x uint64) uint64 {
	const pairs = 0x000000ff000000ff
	x = x*10 + x>>8
	return ((x&pairs)*(100+1e6<<32) + (x>>16&pairs)*(1+1e4<<32)) >> 32
}

// powersOfTen are the powers of ten that fit into a uint64.
var powersOfTen = [...]uint64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
}

// floatPowersOfTen are the powers of ten that fit into a uint64, as float64;
// all of them are exact.
var floatPowersOfTen = [...]float64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
}

// powerOfTenReciprocals[i] contains the first 64 bits of the reciprocal of
// 10^i: 2^127 / (10^i << powerOfTenLeadingZeros[i]), rounded down. The value
// for i = 0, which is never used, is 1 less than this formula gives.
// TestReciprocals computes the table.
var powerOfTenReciprocals = [...]uint64{
	0xffffffffffffffff, 0xcccccccccccccccc, 0xa3d70a3d70a3d70a, 0x83126e978d4fdf3b,
	0xd1b71758e219652b, 0xa7c5ac471b478423, 0x8637bd05af6c69b5, 0xd6bf94d5e57a42bc,
	0xabcc77118461cefc, 0x89705f4136b4a597, 0xdbe6fecebdedd5be, 0xafebff0bcb24aafe,
	0x8cbccc096f5088cb, 0xe12e13424bb40e13, 0xb424dc35095cd80f, 0x901d7cf73ab0acd9,
	0xe69594bec44de15b, 0xb877aa3236a4b449, 0x9392ee8e921d5d07, 0xec1e4a7db69561a5,
}

// powerOfTenLeadingZeros[i] is the number of leading zero bits of powersOfTen[i].
var powerOfTenLeadingZeros = [...]int{63, 60, 57, 54, 50, 47, 44, 40, 37, 34, 30, 27, 24, 20, 17, 14, 10, 7, 4, 0}

// divideByPowerOfTen returns the float64 that is nearest to mantissa /
// 10^power, for powers up to 19.
//
// If a float64 can represent mantissa and 10^power exactly, the division rounds
// only once (Clinger, How to Read Floating Point Numbers Accurately, 1990).
// Otherwise the mantissa is multiplied by the first 64 bits of the reciprocal.
// The first 64 bits of this product are at most two below those of the true
// quotient. If that does not determine the rounding, the quotient is computed
// by division (after Lemire, Number Parsing at a Gigabyte per Second, 2021).
func divideByPowerOfTen(mantissa uint64, power int) float64 {
	if mantissa < 1<<53 {
		return float64(int64(mantissa)) / floatPowersOfTen[power]
	}
	if power == 0 {
		return float64(mantissa)
	}
	return divideByReciprocal(mantissa, power)
}

// divideByReciprocal is the part of divideByPowerOfTen for a mantissa and a
// power above 0. It multiplies by the reciprocal or, if the product does not
// determine the rounding, calls divide128Bits.
func divideByReciprocal(mantissa uint64, power int) float64 {
	up := bits.LeadingZeros64(mantissa)
	q, _ := bits.Mul64(mantissa<<(up&63), powerOfTenReciprocals[power])
	below := uint64(1<<11-1) >> (1 - q>>63) // mask of the bits that rounding removes; q is at least 2^62
	if half := below/2 + 1; q&below != half && q&below != half-1 {
		// The powers are shifted by their leading zeros.
		exponent := 1023 - 62 + powerOfTenLeadingZeros[power] - up
		return math.Float64frombits(uint64(exponent)<<52) * float64(int64(q>>1|1))
	}
	return divide128Bits(mantissa, power)
}

// divide128Bits is the part of divideByPowerOfTen that divides a 128-bit number
// by a 64-bit number, which gives at least 62 bits. If there is a remainder, it
// sets the lowest bit of the result, so that the rounding to 53 bits takes the
// remainder into account.
func divide128Bits(mantissa uint64, power int) float64 {
	divisor := powersOfTen[power]
	up, upDivisor := bits.LeadingZeros64(mantissa), bits.LeadingZeros64(divisor)
	mantissa <<= up
	q, rest := bits.Div64(mantissa>>1, mantissa<<63, divisor<<upDivisor)
	if rest != 0 {
		q |= 1
	}
	two := 1023 + upDivisor - up - 63 // exponent of the power of two that undoes the shifts
	return float64(q) * math.Float64frombits(uint64(two)<<52)
}

// startsExponentOrHex reports whether b, which follows digits, begins with an
// exponent as in 1.5e3 or 0x1p4, or with the x of a hexadecimal number.
func startsExponentOrHex(b []byte) bool {
	switch b[0] {
	case 'e', 'E':
		return startsExponent(b[1:])
	case 'x', 'X', 'p', 'P':
		return true
	}
	return false
}
