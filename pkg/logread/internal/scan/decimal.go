package scan

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Parsing numbers takes most of the time of reading a log. Numbers in the usual form, with at most
// 19 digits after leading zeros, are parsed here, all others by strconv. FuzzDecimal and
// TestDecimal compare the results with strconv's bit by bit.

// min19DigitMantissa is the smallest mantissa of 19 digits. With one more digit, it may not fit into 64 bits.
const min19DigitMantissa = 1e18

// ParseDecimal parses the number at the beginning of b, with optional sign, point and exponent. n
// is its length in bytes. n is 0 if b does not begin with a number, or if only strconv can parse
// the number.
func ParseDecimal(b []byte) (v float64, n int) {
	negative := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative, n = b[0] == '-', 1
	}
	mantissa, begin, power := uint64(0), n, 0 // the number is mantissa / 10^power
	for ; n < len(b) && b[n]-'0' <= 9 && mantissa < min19DigitMantissa; n++ {
		mantissa = 10*mantissa + uint64(b[n]-'0')
	}
	digits := n - begin
	if n < len(b) && b[n] == '.' && mantissa < min19DigitMantissa {
		n++
		begin = n
		for len(b)-n >= 8 && IsDigit(b[n+3]) && mantissa < min19DigitMantissa/1e8 { // the bytes of a short number are parsed below
			eight := binary.LittleEndian.Uint64(b[n:]) ^ 0x3030303030303030     // a digit becomes its value
			others := (eight + 0x7676767676767676 | eight) & 0x8080808080808080 // the first byte that is set is the first above 9
			if others == 0 {
				mantissa, n = 1e8*mantissa+parseEightDigits(eight), n+8
				continue
			}
			if known := bits.TrailingZeros64(others) / 8; known > 3 {
				mantissa, n = wholePowersOfTen[known]*mantissa+parseEightDigits(eight<<(-8*known&63)), n+known
			}
			break
		}
		for ; n < len(b) && b[n]-'0' <= 9 && mantissa < min19DigitMantissa; n++ {
			mantissa = 10*mantissa + uint64(b[n]-'0')
		}
		power = n - begin
		digits += power
	}
	if digits == 0 || mantissa >= min19DigitMantissa && n < len(b) && (IsDigit(b[n]) || b[n] == '.') {
		return 0, 0
	}
	if n < len(b) && b[n] >= 'E' { // usually not
		exponent, length := parseExponent(b[n:])
		if length < 0 {
			return 0, 0
		}
		power -= exponent
		n += length
	}
	if mantissa < 1<<53 && uint(power) < uint(len(powersOfTen)) {
		// A float64 can represent both exactly, so that the quotient is rounded only
		// once (Clinger, How to Read Floating Point Numbers Accurately, 1990).
		v = float64(int64(mantissa))
		if power > 0 {
			v /= powersOfTen[power]
		}
	} else if mantissa < 1<<53 && power < 0 && -power < len(powersOfTen) {
		v = float64(int64(mantissa)) * powersOfTen[-power]
	} else if v = divideByReciprocal(mantissa, power); v == 0 {
		return 0, 0
	}
	if negative {
		v = -v
	}
	return v, n
}

var wholePowersOfTen = [8]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7}

// parseEightDigits parses eight decimal digits. The lowest byte of text is the first digit. It
// combines neighboring digits, then pairs, then groups of four.
func parseEightDigits(text uint64) uint64 {
	text = 10*text + text>>8
	const pairs = 0x000000ff000000ff
	return (text&pairs*(100+1000000<<32) + text>>16&pairs*(1+10000<<32)) >> 32
}

// parseExponent parses the exponent at the beginning of b, which follows the digits of a number.
// length includes the letter e. It is 0 if there is no exponent, and -1 if only strconv can parse
// the number.
func parseExponent(b []byte) (exponent, length int) {
	switch b[0] {
	case 'e', 'E':
	case 'x', 'X', 'p', 'P', '_':
		return 0, -1
	default:
		return 0, 0
	}
	if !startsExponent(b[1:]) {
		return 0, 0
	}
	n := 1
	if b[1] == '-' || b[1] == '+' {
		n = 2
	}
	for ; n < len(b) && IsDigit(b[n]); n++ {
		if exponent = 10*exponent + int(b[n]-'0'); exponent > 999 || n > 8 {
			return 0, -1
		}
	}
	if b[1] == '-' {
		exponent = -exponent
	}
	if n < len(b) && b[n] == '_' {
		return 0, -1
	}
	return exponent, n
}

// powersOfTen are the powers of ten that float64 represents exactly.
var powersOfTen = [...]float64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

// powerOfTenReciprocals[i] contains the first 64 bits of the reciprocal of
// 10^i: 2^127 / (10^i << powerOfTenLeadingZeros[i]), rounded down. The value
// for i = 0 is 1 less than this formula gives.
var powerOfTenReciprocals = [...]uint64{
	0xffffffffffffffff, 0xcccccccccccccccc, 0xa3d70a3d70a3d70a, 0x83126e978d4fdf3b,
	0xd1b71758e219652b, 0xa7c5ac471b478423, 0x8637bd05af6c69b5, 0xd6bf94d5e57a42bc,
	0xabcc77118461cefc, 0x89705f4136b4a597, 0xdbe6fecebdedd5be, 0xafebff0bcb24aafe,
	0x8cbccc096f5088cb, 0xe12e13424bb40e13, 0xb424dc35095cd80f, 0x901d7cf73ab0acd9,
	0xe69594bec44de15b, 0xb877aa3236a4b449, 0x9392ee8e921d5d07, 0xec1e4a7db69561a5,
}

// powerOfTenLeadingZeros[i] is the number of leading zero bits of 10^i in a uint64.
var powerOfTenLeadingZeros = [...]int{63, 60, 57, 54, 50, 47, 44, 40, 37, 34, 30, 27, 24, 20, 17, 14, 10, 7, 4, 0}

// divideByReciprocal returns the float64 nearest to mantissa / 10^power, for a mantissa of at least
// 2^53 and a power from 0 to 19. It returns 0 if the rounding is uncertain or the power is outside
// this range. The first 64 bits of the product with the truncated reciprocal are at most two below
// the first 64 bits of the quotient (after Lemire, Number Parsing at a Gigabyte per Second, 2021).
func divideByReciprocal(mantissa uint64, power int) float64 {
	switch {
	case mantissa < 1<<53 || power < 0 || power >= len(powerOfTenReciprocals):
		return 0
	case power == 0:
		return float64(mantissa)
	}
	up := bits.LeadingZeros64(mantissa)
	q, _ := bits.Mul64(mantissa<<(up&63), powerOfTenReciprocals[power])
	below := uint64(1<<11-1) >> (1 - q>>63) // mask of the bits that rounding removes; q is at least 2^62
	if half := below/2 + 1; q&below == half || q&below == half-1 {
		return 0
	}
	// The powers are shifted by their leading zeros.
	exponent := 1023 - 62 + powerOfTenLeadingZeros[power] - up
	return math.Float64frombits(uint64(exponent)<<52) * float64(int64(q>>1|1))
}
