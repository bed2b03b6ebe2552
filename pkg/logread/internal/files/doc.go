// Package files lists the files and run folders in and below paths, and reads each of them with
// the first format that recognizes it.
//
// A [Lister] finds them; links are followed once. [SetRules] adds the rules that a user keeps
// beside the logs. [ReadAll] reads the tasks concurrently, and [Followed] reads again and again
// what was appended to a file that grows. formats.go lists the formats.
package files
