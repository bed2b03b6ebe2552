package trainer

import "testing"

// TestCounterOutOfOrder checks that a counter counts numbers in any order.
func TestCounterOutOfOrder(t *testing.T) {
	var c intCounter
	times := map[int]int{}
	for _, n := range []int{3, 1, 1, 2, 3, 0, 4, 4, 3, -1, 1 << 40, -1, 1 << 40} {
		if before := c.add(n); before != times[n] {
			t.Errorf("%d came %d times before, expected %d", n, before, times[n])
		}
		times[n]++
	}
}
