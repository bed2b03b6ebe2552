package suggest

import (
	"regexp"
	"slices"
	"strings"
)

// wordList is a list of words with a blank before and after each.
type wordList string

// has reports whether the list contains the word w.
func (l wordList) has(w string) bool { return strings.Contains(string(l), " "+w+" ") }

// The vocabulary: words that show what a number means, in lower case.
const (
	epochWords    wordList = " epoch epochs ep e epoche epochen epoca época époque "
	stepWords     wordList = " step steps iter iters iteration iterations it itr update updates minibatch mb "
	batchWords    wordList = " batch batches bs batchsize "
	rankWords     wordList = " rank r "
	placeWords    wordList = " gpu worker device cuda proc process replica w " // a rank or a number of workers
	countWords    wordList = " gpus workers ranks devices procs processes replicas ngpus ngpu nranks nproc worldsize nworkers "
	timeWords     wordList = " time took duration elapsed seconds secs sec runtime wall walltime needed lasted dt t dauer zeit temps durée tiempo duración "
	restWords     wordList = " eta remaining left "
	totalWords    wordList = " total elapsed overall wall walltime since cumulative cum "
	rateWords     wordList = " throughput ips fps tps speed rate "
	sampleWords   wordList = " sample samples img imgs image images example examples ex seq seqs sequence sequences item items record records patch patches volume volumes slice slices instances rows sentences sent graphs frames bild bilder "
	tokenWords    wordList = " token tokens tok toks words word "
	lossWords     wordList = " loss losses cost objective nll criterion err error entropy xent crossentropy verlust perte pérdida perdida "
	accuracyWords wordList = " acc accuracy top1 acc1 acc@1 top-1 prec@1 correct hits@1 genauigkeit exactitude exactitud "
	iouWords      wordList = " iou miou jaccard "
	diceWords     wordList = " dice dsc mdice mdsc "
	seedWords     wordList = " seed seeds "
	nodeWords     wordList = " node nodes nnodes hosts machines "
	loadWords     wordList = " data load loading loader io dataloader fetch "
	plainWords    wordList = " total set data final percent pct pixel score best ce entropy cross "
	endWords      wordList = " finished done completed complete ended trained "
	otherWork     wordList = " save saved saving checkpoint ckpt snapshot export exported upload uploaded download downloaded setup startup compile compiled compiling "
	connectives   wordList = " with in at and after of a on using for has had got reached "
	ignoredWords  wordList = " the in of is at was with and for a an to on avg average mean current cur running epoch per value now by after from this has had finished done end complete completed info step iter used using over tensor array np float16 float32 float64 float "
)

// The parts of a data set that a value belongs to.
const (
	trainRole = "train"
	valRole   = "val"
	testRole  = "test"
)

// roleOf returns the part of the data set that a word names, or "".
func roleOf(word string) string {
	switch word {
	case "train", "training", "trainings", "trn", "tr", "trained":
		return trainRole
	case "val", "valid", "validation", "validate", "validated", "dev", "eval", "evaluation", "evaluate", "evaluated", "heldout", "vl", "va", "vali", "validierung", "validierungs":
		return valRole
	case "test", "testing", "tst", "tested", "te":
		return testRole
	}
	return ""
}

// isKnownWord reports whether a part of word belongs to the vocabulary.
func isKnownWord(word string) bool {
	return slices.ContainsFunc(splitWords(word), func(w string) bool {
		if roleOf(w) != "" {
			return true
		}
		for _, list := range []wordList{epochWords, stepWords, batchWords, rankWords, placeWords, countWords, timeWords, restWords, rateWords, sampleWords, lossWords, accuracyWords, iouWords, diceWords, seedWords, nodeWords} {
			if list.has(w) {
				return true
			}
		}
		return w == "lr"
	})
}

// hasAny reports whether words contains a word of one of the lists.
func hasAny(words []string, lists ...wordList) bool {
	return slices.ContainsFunc(words, func(w string) bool {
		return slices.ContainsFunc(lists, func(l wordList) bool { return l.has(w) })
	})
}

// unitKind is the kind of a unit that follows a number.
type unitKind int

const (
	noUnit      unitKind = iota
	timeUnit             // s, ms, min, h
	percentUnit          // %
	rateUnit             // samples/s
	inverseUnit          // s/step
	bytesUnit            // GB
)

// unit is the unit of a number.
type unit struct {
	kind    unitKind
	text    string // as in the line
	subject string // of a rate, such as samples; of its inverse, such as step
	scale   string // time unit of an inverse or a duration, such as ms
}

var (
	percentAfter = regexp.MustCompile(`^\s*%`)
	rateAfter    = regexp.MustCompile(`^\s*([A-Za-z]+)(?:\s*/|\s+per\s+)\s*(s|sec|secs|second|seconds)\b`)
	ratesAfter   = regexp.MustCompile(`^\s*(ips|fps|tps|sps)\b`)
	inverseAfter = regexp.MustCompile(`^\s*(ms|us|s|secs?|seconds?|mins?|minutes?|h)(?:\s*/|\s+per\s+)\s*([A-Za-z]+)\b`)
	timeAfter    = regexp.MustCompile(`^\s*(S|SECS?|SECONDS?|MINS?|ms|msecs?|milliseconds?|us|µs|secs?|seconds?|s|mins?|minutes?|m|hrs?|hours?|h)(?:[^A-Za-z0-9_/]|$)`)
	bytesAfter   = regexp.MustCompile(`^\s*([KMGT]i?B|bytes|[KMGT]i?B/s|GB/sec|MB/sec)\b`)
)

// unitAfter returns the unit at the beginning of text, which follows a number,
// and its length with the blanks before it. A word before = or : is the name of
// the next value, not a unit.
func unitAfter(text string) (unit, int) {
	u, n := findUnit(text)
	if next := strings.TrimLeft(text[n:], " "); next != "" && strings.IndexByte("=:", next[0]) >= 0 && n > 0 && text[0] == ' ' {
		return unit{}, 0
	}
	return u, n
}

// findUnit is like unitAfter, but also returns names of values.
func findUnit(text string) (unit, int) {
	if m := percentAfter.FindString(text); m != "" {
		return unit{kind: percentUnit, text: "%"}, len(m)
	}
	if m := bytesAfter.FindStringSubmatch(text); m != nil {
		return unit{kind: bytesUnit, text: m[1]}, len(m[0])
	}
	if m := inverseAfter.FindStringSubmatch(text); m != nil {
		return unit{kind: inverseUnit, text: strings.TrimSpace(m[0]), scale: m[1], subject: strings.ToLower(m[2])}, len(m[0])
	}
	if m := rateAfter.FindStringSubmatch(text); m != nil {
		return unit{kind: rateUnit, text: strings.TrimSpace(m[0]), subject: strings.ToLower(m[1])}, len(m[0])
	}
	if m := ratesAfter.FindStringSubmatch(text); m != nil {
		return unit{kind: rateUnit, text: m[1], subject: map[string]string{"ips": "images", "fps": "frames", "tps": "tokens", "sps": "samples"}[m[1]]}, len(m[0])
	}
	if m := timeAfter.FindStringSubmatchIndex(text); m != nil {
		return unit{kind: timeUnit, text: text[m[2]:m[3]], scale: text[m[2]:m[3]]}, m[3]
	}
	return unit{}, 0
}

// unitOfName returns the unit that ends the name of a value, such as time_ms or
// time (s).
func unitOfName(words []string) unit {
	if len(words) == 0 {
		return unit{}
	}
	switch last := words[len(words)-1]; last {
	case "s", "sec", "secs", "seconds", "second", "ms", "msec", "milliseconds", "us", "min", "mins", "minutes", "h", "hours", "hrs":
		return unit{kind: timeUnit, text: last, scale: last}
	case "percent", "pct":
		return unit{kind: percentUnit, text: last}
	}
	return unit{}
}

// isSecond reports whether the unit of time is the second.
func isSecond(scale string) bool {
	return slices.Contains([]string{"", "s", "sec", "secs", "second", "seconds", "compound"}, strings.ToLower(scale))
}
