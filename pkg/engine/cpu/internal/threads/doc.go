// Package threads runs tasks on a fixed group of goroutines. A task is divided into items.
// Worker i of a group always computes the same items of a task, so that results do not
// depend on timing.
package threads
