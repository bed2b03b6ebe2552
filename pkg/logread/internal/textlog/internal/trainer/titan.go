package trainer

import (
	"bytes"
	"slices"
	"strconv"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
)

// Titan returns the format of torchtitan.
func Titan() logline.Format {
	return logline.Format{Name: "torchtitan", Rules: []logline.Rule{
		{Prefix: "step:", Read: readTitanStep, EndsWithValue: true},
		{Prefix: "Building ", Read: readTitanMesh},
		{First: "\x1b", Read: readColoredLine},
	}}
}

// readTitanStep reads torchtitan's line "step:", with or without colors. tps is
// in tokens per second and device, mfu in percent.
//
//	step:  1  loss:  8.1309  grad_norm:  1.5  memory:  0.53GiB(0.56%)  tps: 7,123  tflops: 10.1  mfu: 35.20%
func readTitanStep(log *logline.Log, m []byte) logline.Result {
	if bytes.IndexByte(m, 0x1b) >= 0 {
		m = stripANSIColors(m)
	}
	c := scan.Cursor{Rest: bytes.TrimLeft(m, " ")}
	step := c.Expect("step:").SkipBlanks().ReadInteger()
	isTitan := c.Accept(" ") // and not as in "step:10/2000"
	c.SkipBlanks()
	if c.Failed || !isTitan || !bytes.Contains(c.Rest, []byte("loss:")) {
		return logline.Unknown
	}
	now := log.StampSeconds()
	log.CountLine(logline.Titan)
	for len(c.Rest) > 0 {
		key, after, ok := bytes.Cut(c.Rest, []byte(":"))
		if !ok || !scan.IsName(key) {
			return log.Refuse("expected \"name: number\", got %.40q", c.Rest)
		}
		c.Rest = after
		c.SkipBlanks()
		end := bytes.IndexByte(c.Rest, ' ')
		if end < 0 {
			end = len(c.Rest)
		}
		word := c.Rest[:end]
		c.Rest = c.Rest[end:]
		c.SkipBlanks()
		v, n := scan.ParseDecimal(word)
		if n == 0 || n < len(word) && (word[n] == ',' || word[n] == '.') {
			var buf [64]byte
			number := scan.Cursor{Rest: slices.DeleteFunc(append(buf[:0], word...), func(c byte) bool { return c == ',' })} // 7,123
			v = number.ReadFloat()
			if number.Failed {
				log.AddProblem("%s: expected a number, got %.40q", key, word)
				continue
			}
		} // a unit such as % or GiB may follow
		log.AddPoint(key, max(log.Rank, -1), int64(step), v, now)
	}
	return logline.Used
}

// readTitanMesh reads torchtitan's device mesh, whose number of devices is the number of workers.
// Expert parallelism (ep and etp) uses devices of the other dimensions.
//
//	Building device mesh with parallelism: pp=1, dp_replicate=2, dp_shard=4, cp=1, tp=1, ep=1, etp=1
//	Building 2-D device mesh with ['dp_replicate', 'dp_shard'], [2, 4]
func readTitanMesh(log *logline.Log, m []byte) logline.Result {
	m = bytes.TrimRight(m, " ")
	list, named := bytes.CutPrefix(m, []byte("Building device mesh with parallelism: "))
	if !named {
		i := bytes.LastIndex(m, []byte("], ["))
		if i < 0 || !bytes.Contains(m[:i], []byte("-D device mesh with [")) || m[len(m)-1] != ']' {
			return logline.Unknown
		}
		list = m[i+len("], [") : len(m)-1]
	}
	devices := 1
	for item := range bytes.SplitSeq(list, []byte(", ")) {
		name, number, found := bytes.Cut(item, []byte("="))
		if !found {
			name, number = nil, item
		}
		n, err := strconv.Atoi(string(number))
		if string(name) != "ep" && string(name) != "etp" {
			devices *= max(n, 1)
		}
		if err != nil || found != named || devices > record.MaxWorkers {
			return logline.Unknown
		}
	}
	if log.Current.Closed || log.Current.HasValues() { // the line of another rank
		return logline.Unknown
	}
	log.CountLine(logline.Titan).Run.Info.Workers = devices
	return logline.Used
}

// readColoredLine reads a line that begins with the escape sequence of a color: a step of
// torchtitan or a progress bar of Keras 3.
func readColoredLine(log *logline.Log, m []byte) logline.Result {
	if bytes.Contains(m, []byte("step:")) {
		return readTitanStep(log, m)
	}
	if plain := scan.SkipBlanks(stripANSIColors(m)); len(plain) > 0 && scan.IsDigit(plain[0]) {
		return readKerasSummary(log, plain)
	}
	return logline.Unknown
}

// stripANSIColors returns m without the escape sequences of a terminal (ESC [ … letter).
func stripANSIColors(m []byte) []byte {
	var out []byte
	for i := 0; i < len(m); i++ {
		if m[i] != 0x1b {
			out = append(out, m[i])
			continue
		}
		if i+1 < len(m) && m[i+1] == '[' {
			i++
		}
		for i+1 < len(m) && !scan.IsLetter(m[i+1]) {
			i++
		}
		i++
	}
	return out
}
