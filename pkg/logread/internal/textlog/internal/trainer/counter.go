package trainer

// intCounter counts the occurrences of integers.
type intCounter struct {
	dense  []int32     // counts of 0, 1, 2, …, as far as these were added in order
	sparse map[int]int // counts of other integers
}

// add counts n and returns the number of its previous occurrences.
func (t *intCounter) add(n int) int {
	k := len(t.dense)
	if n == k && t.sparse == nil { // usually
		t.dense = append(t.dense, 1)
		return 0
	}
	if n == k || n == k+1 {
		for ; k <= n; k++ {
			t.dense = append(t.dense, int32(t.sparse[k]))
		}
	}
	if n >= 0 && n < len(t.dense) {
		t.dense[n]++
		return int(t.dense[n]) - 1
	}
	if t.sparse == nil {
		t.sparse = map[int]int{}
	}
	t.sparse[n]++
	return t.sparse[n] - 1
}

func (t *intCounter) count(n int) int {
	if n >= 0 && n < len(t.dense) {
		return int(t.dense[n])
	}
	return t.sparse[n]
}
