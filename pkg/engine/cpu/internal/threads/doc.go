// Package threads runs tasks on a fixed group of goroutines. A task is divided into items.
// Each goroutine begins with an equal part of them. One that is done takes items from the
// parts of others, so that all end at about the same time also if one of them starts late or
// is interrupted. So the worker that computes an item depends on timing, and the result of an
// item must not depend on its worker.
package threads
