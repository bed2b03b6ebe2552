// Package server has the exchange of the workers that do not wait for each other in each step:
// asynchronous parameter servers, and workers that average with a random neighbor.
package server
