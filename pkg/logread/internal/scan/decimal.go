package scan

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Parsing numbers takes most of the time of reading a log. Numbers as programs
// print them, with at most 19 digits and no exponent, are parsed here, eight
// digits at once; strconv parses the others. FuzzDecimal and TestDecimal
// compare the results with strconv's bit by bit.

// Decimal parses the number that b begins with, with or without sign and point,
// and returns its length. The length is 0 if strconv must parse it, or if b
// does not begin with a number.
//
// In most numbers the point is among the first eight characters. Once it is
// removed, the digits are in two words or in one. The bytes after b in the same
// buffer are loaded, but do not affect the result.
func Decimal(b []byte) (v float64, n int) {
	w := b[:cap(b)]
	if len(w) < 24 {
		return anyDecimal(b)
	}
	x := binary.LittleEndian.Uint64(w) ^ zeros
	k := digitsOf(x)
	if k == 0 || k == 8 || k >= len(b) || w[k] != '.' {
		return decimalWithoutPoint(b, x, k)
	}
	rest := binary.LittleEndian.Uint64(w[8:]) ^ zeros
	whole := uint64(1)<<(8*k&63) - 1
	x = x&whole | (x>>8|rest<<56)&^whole
	count := digitsOf(x)
	if n = count + 1; count == k || n > len(b) {
		return anyDecimal(b)
	}
	if count < 8 {
		if n < len(b) && w[n] >= 'E' && goesOn(b[n:]) {
			return 0, 0
		}
		return float64(int64(eightDigits(x<<((64-8*count)&63)))) / exactPowers[(count-k)&7], n
	}
	mantissa := eightDigits(x)
	x = rest>>8 | (binary.LittleEndian.Uint64(w[16:])^zeros)<<56
	more := digitsOf(x)
	n += more
	mantissa = mantissa*integerPowers[more&15] + eightDigits(x<<(64-8*more))
	if more == 8 && n < len(b) && IsDigit(w[n]) { // as Python prints a float
		if len(w) < 25 {
			return anyDecimal(b)
		}
		x = binary.LittleEndian.Uint64(w[17:]) ^ zeros
		if more = digitsOf(x); more > 3 {
			return anyDecimal(b)
		}
		n += more
		mantissa = mantissa*integerPowers[more&3] + eightDigits(x<<((64-8*more)&63))
		if mantissa > 0 && n <= len(b) && (n == len(b) || w[n] < 'E') {
			// Some such numbers are exact in a float and some are not; a branch would be mispredicted.
			return product(mantissa, n-1-k), n
		}
	}
	if n > len(b) {
		return anyDecimal(b)
	}
	if n < len(b) && w[n] >= 'E' && goesOn(b[n:]) {
		return 0, 0
	}
	if mantissa < 1<<53 { // as in quotient
		return float64(int64(mantissa)) / exactPowers[n-1-k], n
	}
	return quotient(mantissa, n-1-k), n
}

// decimalWithoutPoint is Decimal for k digits, in the word x, without a point
// after them.
func decimalWithoutPoint(b []byte, x uint64, k int) (v float64, n int) {
	switch k = min(k, len(b)); {
	case k == 8 || k < len(b) && b[k] == '.':
		return anyDecimal(b)
	case k == 0:
		if len(b) == 0 || b[0] != '-' && b[0] != '+' {
			return 0, 0
		}
		return anyDecimal(b)
	case k < len(b) && b[k] >= 'E' && goesOn(b[k:]):
		return 0, 0
	}
	return float64(int64(eightDigits(x << ((64 - 8*k) & 63)))), k
}

// ShortCount parses one to seven digits and returns how many there are. n is 0
// if b begins otherwise.
func ShortCount(b []byte) (v, n int) {
	w := b[:cap(b)]
	if len(w) < 8 {
		return 0, 0
	}
	x := binary.LittleEndian.Uint64(w) ^ zeros
	if n = digitsOf(x); n == 0 || n >= 8 || n > len(b) {
		return 0, 0
	}
	return int(eightDigits(x << ((64 - 8*n) & 63))), n
}

// Count15 parses one to fifteen digits and returns how many there are. n is 0
// if b begins otherwise.
func Count15(b []byte) (v, n int) {
	w := b[:cap(b)]
	if len(w) < 16 {
		return 0, 0
	}
	x := binary.LittleEndian.Uint64(w) ^ zeros
	if n = digitsOf(x); n == 0 || n > len(b) {
		return 0, 0
	}
	if n < 8 {
		return int(eightDigits(x << ((64 - 8*n) & 63))), n
	}
	rest := binary.LittleEndian.Uint64(w[8:]) ^ zeros
	more := digitsOf(rest)
	if n += more; more == 8 || n > len(b) {
		return 0, 0
	}
	// With no more digits, everything is shifted out. Two shifts, since a shift by 64 needs a test.
	return int(eightDigits(x)*integerPowers[more] + eightDigits(rest<<8<<(56-8*more))), n
}

// zeros is the word "00000000". XOR with it turns a digit into its value, and
// any other byte into a value above 9.
const zeros = 0x3030303030303030

// digitsOf returns how many digits come first in a word that was XORed with
// zeros.
func digitsOf(x uint64) int {
	// A byte above 9 gets its highest bit set. A carry out of it changes only
	// bytes after the first such byte.
	return bits.TrailingZeros64(((x+0x7676767676767676)|x)&0x8080808080808080) / 8
}

// goesOn reports whether b, which follows digits, continues a number that
// strconv must parse.
func goesOn(b []byte) bool { return IsLetter(b[0]) && exponentLetter(b) || b[0] == '_' }

// anyDecimal is Decimal for numbers of any form.
func anyDecimal(b []byte) (v float64, n int) {
	negative := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		n = 1
	}
	first := n
	mantissa, n := digits(b, n, 0)
	count, power := n-first, 0
	if n < len(b) && b[n] == '.' {
		point := n + 1
		mantissa, n = digits(b, point, mantissa)
		power = n - point
		count += power
	}
	if count == 0 || count > 19 { // with 20 the mantissa may not fit into 64 bits
		return 0, 0
	}
	if n < len(b) && goesOn(b[n:]) {
		return 0, 0
	}
	v = quotient(mantissa, power)
	if negative {
		v = -v
	}
	return v, n
}

// digits appends the digits at b[n:] to the mantissa, and returns it with the
// index after them. With more than 19 digits the mantissa overflows.
func digits(b []byte, n int, mantissa uint64) (uint64, int) {
	for len(b)-n >= 8 {
		x := binary.LittleEndian.Uint64(b[n:]) ^ zeros
		k := digitsOf(x)
		if k < 8 { // the shift adds zeros before the digits
			return mantissa*integerPowers[k] + eightDigits(x<<(64-8*k)), n + k
		}
		mantissa = mantissa*1e8 + eightDigits(x)
		n += 8
	}
	for ; n < len(b) && IsDigit(b[n]); n++ {
		mantissa = mantissa*10 + uint64(b[n]-'0')
	}
	return mantissa, n
}

// eightDigits returns the number with these eight digits, the first in the
// lowest byte. Three multiplications combine pairs, fours and all eight
// (Lemire, Number Parsing at a Gigabyte per Second, 2021, section 4).
func eightDigits(x uint64) uint64 {
	const pairs = 0x000000ff000000ff
	x = x*10 + x>>8
	return ((x&pairs)*(100+1e6<<32) + (x>>16&pairs)*(1+1e4<<32)) >> 32
}

// integerPowers are the powers of ten that fit into a uint64.
var integerPowers = [...]uint64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
}

// exactPowers are the same powers as float64; each is exact.
var exactPowers = [...]float64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
}

// reciprocals[i] is 2^127 / (10^i << leading zeros of 10^i), rounded down: the
// first 64 bits of the reciprocal of 10^i. That of 1, by which nothing is
// divided, is one less. TestReciprocals computes them.
var reciprocals = [...]uint64{
	0xffffffffffffffff, 0xcccccccccccccccc, 0xa3d70a3d70a3d70a, 0x83126e978d4fdf3b,
	0xd1b71758e219652b, 0xa7c5ac471b478423, 0x8637bd05af6c69b5, 0xd6bf94d5e57a42bc,
	0xabcc77118461cefc, 0x89705f4136b4a597, 0xdbe6fecebdedd5be, 0xafebff0bcb24aafe,
	0x8cbccc096f5088cb, 0xe12e13424bb40e13, 0xb424dc35095cd80f, 0x901d7cf73ab0acd9,
	0xe69594bec44de15b, 0xb877aa3236a4b449, 0x9392ee8e921d5d07, 0xec1e4a7db69561a5,
}

// leadingZeros[i] is the number of leading zeros of integerPowers[i].
var leadingZeros = [...]int{63, 60, 57, 54, 50, 47, 44, 40, 37, 34, 30, 27, 24, 20, 17, 14, 10, 7, 4, 0}

// quotient returns the float64 nearest to mantissa / 10^power, for powers up to
// 19.
//
// If both are exact in a float64, their quotient is rounded once (Clinger, How
// to Read Floating Point Numbers Accurately, 1990). Otherwise the mantissa is
// multiplied by the first 64 bits of the reciprocal. The first 64 bits of the
// true quotient are those of this product, or one or two more. Only if that
// leaves the rounding open is the whole quotient computed (after Lemire, Number
// Parsing at a Gigabyte per Second, 2021).
func quotient(mantissa uint64, power int) float64 {
	if mantissa < 1<<53 {
		return float64(int64(mantissa)) / exactPowers[power]
	}
	if power == 0 {
		return float64(mantissa)
	}
	return product(mantissa, power)
}

// product is quotient for mantissas and powers above 0, by multiplication if
// that decides the rounding.
func product(mantissa uint64, power int) float64 {
	up := bits.LeadingZeros64(mantissa)
	q, _ := bits.Mul64(mantissa<<(up&63), reciprocals[power])
	below := uint64(1<<11-1) >> (1 - q>>63) // mask of the bits that are rounded away, since q is at least 2^62
	if half := below/2 + 1; q&below != half && q&below != half-1 {
		// The powers are shifted by their leading zeros.
		exponent := 1023 - 62 + leadingZeros[power] - up
		return math.Float64frombits(uint64(exponent)<<52) * float64(int64(q>>1|1))
	}
	return wholeQuotient(mantissa, power)
}

// wholeQuotient is quotient by division. Dividing 128 by 64 bits gives at least
// 62 bits of quotient. The lowest bit is set if there is a remainder, so that
// the rounding to 53 bits sees it.
func wholeQuotient(mantissa uint64, power int) float64 {
	divisor := integerPowers[power]
	up, upDivisor := bits.LeadingZeros64(mantissa), bits.LeadingZeros64(divisor)
	mantissa <<= up
	q, rest := bits.Div64(mantissa>>1, mantissa<<63, divisor<<upDivisor)
	if rest != 0 {
		q |= 1
	}
	two := 1023 + upDivisor - up - 63 // exponent of the power of two that undoes the shifts
	return float64(q) * math.Float64frombits(uint64(two)<<52)
}

// exponentLetter reports whether b continues as in 1.5e3 or 0x1.
func exponentLetter(b []byte) bool {
	switch b[0] {
	case 'e', 'E':
		return exponent(b[1:])
	case 'x', 'X', 'p', 'P':
		return true
	}
	return false
}
