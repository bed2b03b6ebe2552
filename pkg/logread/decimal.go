package logread

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// The numbers of a log take most of the time of reading it. Those that
// programs write, of at most 19 digits and without an exponent, are read here,
// eight digits at once; strconv reads the others. FuzzDecimal and TestDecimal
// hold them to strconv's result, bit by bit.

// decimal is the number of digits, with or without sign and point, that b
// begins with, and its length, which is 0 where strconv must read it.
func decimal(b []byte) (v float64, n int) {
	negative := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		n = 1
	}
	first := n
	var mantissa uint64
	for n < len(b) && n-first < 4 && digit(b[n]) { // most have few in front of the point
		mantissa = mantissa*10 + uint64(b[n]-'0')
		n++
	}
	if n < len(b) && digit(b[n]) {
		mantissa, n = digits(b, n, mantissa)
	}
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
	if n < len(b) && (letter(b[n]) && exponentLetter(b[n:]) || b[n] == '_') {
		return 0, 0
	}
	v = quotient(mantissa, power)
	if negative {
		v = -v
	}
	return v, n
}

// digits appends the digits at b[n:] to the mantissa; it returns what stands
// behind them. Of more than 19 digits the mantissa is of no use.
func digits(b []byte, n int, mantissa uint64) (uint64, int) {
	for len(b)-n >= 8 {
		x := binary.LittleEndian.Uint64(b[n:]) ^ 0x3030303030303030 // a digit becomes its value, all else more than 9
		// A byte above 9 gets its highest bit; a carry out of it only
		// changes bytes behind the first such one.
		others := ((x + 0x7676767676767676) | x) & 0x8080808080808080
		if others == 0 {
			mantissa = mantissa*1e8 + eightDigits(x)
			n += 8
			continue
		}
		k := bits.TrailingZeros64(others) &^ 7 // bits of the digits
		// What is shifted in are zeros in front of them.
		return mantissa*integerPowers[k/8] + eightDigits(x<<(64-k)), n + k/8
	}
	for ; n < len(b) && digit(b[n]); n++ {
		mantissa = mantissa*10 + uint64(b[n]-'0')
	}
	return mantissa, n
}

// eightDigits is the number of eight digits, the first in the lowest byte:
// pairs, fours and all eight are put together by three multiplications
// (Lemire, Number Parsing at a Gigabyte per Second, 2021, section 4).
func eightDigits(x uint64) uint64 {
	const pairs = 0x000000ff000000ff
	x = x*10 + x>>8
	return ((x&pairs)*(100+1e6<<32) + (x>>16&pairs)*(1+1e4<<32)) >> 32
}

// integerPowers are the powers of ten that a uint64 holds.
var integerPowers = [...]uint64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
}

// exactPowers are those, too, as floats: each of them is exact.
var exactPowers = [...]float64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
}

// quotient is the float64 nearest to mantissa / 10^power, of a power up to 19.
//
// Where both are exact in a float64, their quotient is rounded once (Clinger,
// How to Read Floating Point Numbers Accurately, 1990). Else 128 by 64 bits are
// divided, which gives at least 62 bits of quotient; the lowest is set where
// anything remains, so that the rounding to 53 bits decides as if it had seen
// all of it.
func quotient(mantissa uint64, power int) float64 {
	if mantissa < 1<<53 {
		return float64(mantissa) / exactPowers[power]
	}
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

// exponentLetter says whether b goes on as 1.5 does in 1.5e3 (or 0x).
func exponentLetter(b []byte) bool {
	switch b[0] {
	case 'e', 'E':
		return exponent(b[1:])
	case 'x', 'X', 'p', 'P':
		return true
	}
	return false
}
