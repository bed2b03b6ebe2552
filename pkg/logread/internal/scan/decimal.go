package scan

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// The numbers of a log take most of the time of reading it. Those that
// programs write, of at most 19 digits and without an exponent, are read here,
// eight digits at once; strconv reads the others. FuzzDecimal and TestDecimal
// hold them to strconv's result, bit by bit.

// Decimal is the number of digits, with or without sign and point, that b
// begins with, and its length, which is 0 where strconv must read it.
//
// Of nearly all the point is among the first eight characters. Once it is taken
// out, the digits lie in two words, or in one. What lies behind b in the same
// buffer is looked at and counts for nothing.
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
	if more == 8 && n < len(b) && IsDigit(w[n]) { // as a float's repr is
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
			// Of so many digits some are exact in a float and some not: no branch for that.
			return product(mantissa, n-1-k), n
		}
	}
	if n > len(b) {
		return anyDecimal(b)
	}
	if n < len(b) && w[n] >= 'E' && goesOn(b[n:]) {
		return 0, 0
	}
	if mantissa < 1<<53 { // as quotient does it
		return float64(int64(mantissa)) / exactPowers[n-1-k], n
	}
	return quotient(mantissa, n-1-k), n
}

// decimalWithoutPoint is decimal for k digits, whose word is x, that have no
// point behind them, as far as they are in b.
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

// ShortCount is the number of one to seven digits that b begins with, and how
// many they are; 0 where it is any other, or decimal must look at it.
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

// Count15 is shortCount for one to fifteen digits.
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
	// Of no more digits all is shifted out: in two steps, for a shift by 64 costs a test.
	return int(eightDigits(x)*integerPowers[more] + eightDigits(rest<<8<<(56-8*more))), n
}

// zeros are eight digits 0: a digit less them is its value, all else more than 9.
const zeros = 0x3030303030303030

// digitsOf is how many of eight bytes, less zeros, are digits in front of
// anything else.
func digitsOf(x uint64) int {
	// A byte above 9 gets its highest bit; a carry out of it only changes
	// bytes behind the first such one.
	return bits.TrailingZeros64(((x+0x7676767676767676)|x)&0x8080808080808080) / 8
}

// goesOn says whether b, behind digits, makes them a number that strconv must
// read.
func goesOn(b []byte) bool { return IsLetter(b[0]) && exponentLetter(b) || b[0] == '_' }

// anyDecimal is decimal for a number of any form.
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

// digits appends the digits at b[n:] to the mantissa; it returns what stands
// behind them. Of more than 19 digits the mantissa is of no use.
func digits(b []byte, n int, mantissa uint64) (uint64, int) {
	for len(b)-n >= 8 {
		x := binary.LittleEndian.Uint64(b[n:]) ^ zeros
		k := digitsOf(x)
		if k < 8 { // what is shifted in are zeros in front of them
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

// reciprocals are 2^127 / (10^i << its leading zeros), rounded down: the first
// 64 bits of a power's reciprocal (of 1, which is not divided by, one less). TestReciprocals works them out again.
var reciprocals = [...]uint64{
	0xffffffffffffffff, 0xcccccccccccccccc, 0xa3d70a3d70a3d70a, 0x83126e978d4fdf3b,
	0xd1b71758e219652b, 0xa7c5ac471b478423, 0x8637bd05af6c69b5, 0xd6bf94d5e57a42bc,
	0xabcc77118461cefc, 0x89705f4136b4a597, 0xdbe6fecebdedd5be, 0xafebff0bcb24aafe,
	0x8cbccc096f5088cb, 0xe12e13424bb40e13, 0xb424dc35095cd80f, 0x901d7cf73ab0acd9,
	0xe69594bec44de15b, 0xb877aa3236a4b449, 0x9392ee8e921d5d07, 0xec1e4a7db69561a5,
}

// leadingZeros are the zeros in front of integerPowers.
var leadingZeros = [...]int{63, 60, 57, 54, 50, 47, 44, 40, 37, 34, 30, 27, 24, 20, 17, 14, 10, 7, 4, 0}

// quotient is the float64 nearest to mantissa / 10^power, of a power up to 19.
//
// Where both are exact in a float64, their quotient is rounded once (Clinger,
// How to Read Floating Point Numbers Accurately, 1990). Else the mantissa is
// multiplied by the first 64 bits of the reciprocal. The quotient's first 64
// bits are then that product's, or one or two more than these; only where that
// leaves open to which side it is rounded is it worked out whole (after
// Lemire, Number Parsing at a Gigabyte per Second, 2021).
func quotient(mantissa uint64, power int) float64 {
	if mantissa < 1<<53 {
		return float64(int64(mantissa)) / exactPowers[power]
	}
	if power == 0 {
		return float64(mantissa)
	}
	return product(mantissa, power)
}

// product is quotient for a mantissa and a power above 0, by multiplication
// alone as far as that decides.
func product(mantissa uint64, power int) float64 {
	up := bits.LeadingZeros64(mantissa)
	q, _ := bits.Mul64(mantissa<<(up&63), reciprocals[power])
	below := uint64(1<<11-1) >> (1 - q>>63) // the bits that are rounded away: q is 2^62 or more
	if half := below/2 + 1; q&below != half && q&below != half-1 {
		// The powers are shifted by as much as they have zeros in front.
		exponent := 1023 - 62 + leadingZeros[power] - up
		return math.Float64frombits(uint64(exponent)<<52) * float64(int64(q>>1|1))
	}
	return wholeQuotient(mantissa, power)
}

// wholeQuotient is quotient by division: 128 by 64 bits give at least 62 bits
// of quotient; the lowest is set where anything remains, so that the rounding to
// 53 bits decides as if it had seen all of it.
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
