package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/recordtest"
	"lockstep/pkg/runs"
)

// kineto is a trace in the form of PyTorch's profiler on a GPU (torch 2.x):
// host operators that call each other, the kernels that they launch, a
// collective, a copy of a batch, an enclosing step, Python frames, flows and
// counters.
const kineto = `{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42297786368}],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]},
  "displayTimeUnit": "ms",
  "traceEvents": [
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 100, "tid": 100, "ts": 1700000000000000.125, "dur": 1000, "args": {"External id": 1, "Ev Idx": 0}},
  {"ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "pid": 100, "tid": 100, "ts": 1700000000000010.125, "dur": 50.5},
  {"ph": "X", "cat": "cpu_op", "name": "aten::conv2d", "pid": 100, "tid": 100, "ts": 1700000000000100.125, "dur": 30, "args": {"Input Dims": [[8, 1], []], "text": "a } \" ] b"}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::convolution", "pid": 100, "tid": 100, "ts": 1700000000000101.125, "dur": 28},
  {"ph": "X", "cat": "python_function", "name": "train.py(12): step", "pid": 100, "tid": 100, "ts": 1700000000000000.125, "dur": 900},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": 100, "ts": 1700000000000110.125, "dur": 5},
  {"ph": "X", "cat": "user_annotation", "name": "nccl:all_reduce", "pid": 100, "tid": 101, "ts": 1700000000000140.125, "dur": 9},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 0, "tid": 7, "ts": 1700000000000090.125, "dur": 20},
  {"ph": "X", "cat": "kernel", "name": "void cutlass::Kernel\u003cx\u003e", "pid": 0, "tid": 7, "ts": 1700000000000120.125, "dur": 100},
  {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long)", "pid": 0, "tid": 20, "ts": 1700000000000150.125, "dur": 200.001},
  {"ph": "X", "cat": "gpu_user_annotation", "name": "nccl:all_reduce", "pid": 0, "tid": 20, "ts": 1700000000000150.125, "dur": 200},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "pid": 0, "tid": 7, "ts": 1700000000000400.125, "dur": 3},
  {"ph": "s", "id": 5, "pid": 100, "tid": 100, "ts": 1700000000000110.125, "cat": "ac2g", "name": "ac2g"},
  {"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "ts": 1700000000000000, "args": {"name": "python"}},
  {"ph": "i", "name": "Record Window End", "ts": 1700000000002000, "pid": "", "tid": "Trace"}
  ], "traceName": "x.json"
}`

func readTraceText(t *testing.T, name, text string) runs.Run {
	t.Helper()
	run, _, err := readTrace(name, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// readTrace reads a single trace.
func readTrace(name string, r io.Reader) (runs.Run, *record.Report, error) {
	report := &record.Report{Path: name, Kind: kind}
	parts, err := readTraceFile(context.Background(), &record.Input{Path: name, Reader: r, Report: report})
	run := runs.Run{}
	for _, p := range parts {
		p.Run.File, p.Report = name, report
		JoinTraceFiles(parts)
		run = p.Run
	}
	run.Problems = report.Problems()
	return run, report, err
}

// one returns a span. Its times are in microseconds.
func one(rank int, lane, kind, name string, start, length float64) runs.Span {
	return runs.Span{Rank: rank, Lane: lane, Kind: kind, Name: name, Start: start, Seconds: length}
}

func TestTraceKineto(t *testing.T) {
	run := readTraceText(t, "x.json", kineto)
	want := []runs.Span{
		one(3, "0/7", runs.SpanData, "Memcpy HtoD (Pinned -> Device)", 90e-6, 20e-6),
		one(3, "0/7", runs.SpanCompute, "void cutlass::Kernel<x>", 120e-6, 100e-6),
		one(3, "0/7", runs.SpanOther, "Memcpy DtoH (Device -> Pageable)", 400e-6, 3e-6),
		one(3, "0/20", runs.SpanCommunication, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long)", 150e-6, 200.001e-6),
		one(3, "0/20", runs.SpanOther, "nccl:all_reduce", 150e-6, 200e-6),
		one(3, "100/100", runs.SpanOther, "ProfilerStep#7", 0, 1000e-6),
		one(3, "100/100", runs.SpanData, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 10e-6, 50.5e-6),
		one(3, "100/100", runs.SpanOther, "aten::conv2d", 100e-6, 30e-6), // aten::convolution lies in it
		one(3, "100/100", runs.SpanOther, "cudaLaunchKernel", 110e-6, 5e-6),
		one(3, "100/101", runs.SpanOther, "nccl:all_reduce", 140e-6, 9e-6), // hands the kernel over
	}
	if d := cmp.Diff(want, run.Spans); d != "" || len(run.Problems) > 0 || run.Info.Workers != 8 {
		t.Errorf("workers %d, %v (-want +got)\n%s", run.Info.Workers, run.Problems, d)
	}
}

// TestTraceStepsOfDevice checks that steps are counted once: Kineto marks a
// step on the host and again on each stream, and only the host's mark counts.
func TestTraceStepsOfDevice(t *testing.T) {
	run, report, err := readTrace("rank0.json", strings.NewReader(`[
{"name":"ProfilerStep#10","cat":"user_annotation","ph":"X","ts":0,"dur":100,"pid":1,"tid":1},
{"name":"ProfilerStep#10","cat":"gpu_user_annotation","ph":"X","ts":5,"dur":90,"pid":0,"tid":7},
{"name":"ProfilerStep#10","cat":"gpu_user_annotation","ph":"X","ts":20,"dur":50,"pid":0,"tid":20},
{"name":"forward","cat":"gpu_user_annotation","ph":"X","ts":5,"dur":40,"pid":0,"tid":7},
{"name":"gemm","cat":"kernel","ph":"X","ts":10,"dur":80,"pid":0,"tid":7}
]`))
	if err != nil {
		t.Fatal(err)
	}
	want := []runs.Span{
		one(0, "0/7", runs.SpanOther, "forward", 5e-6, 40e-6),
		one(0, "0/7", runs.SpanCompute, "gemm", 10e-6, 80e-6),
		one(0, "1/1", runs.SpanOther, "ProfilerStep#10", 0, 100e-6),
	}
	if d := cmp.Diff(want, run.Spans); d != "" || len(run.Problems) > 0 || !strings.Contains(fmt.Sprint(report.Assumed), "2 step marks on device streams are ignored: the host's marks count") {
		t.Errorf("%v (-want +got)\n%s%v", run.Problems, d, report.Assumed)
	}
}

// TestTraceHost checks a trace without kernels: the host's operators are the
// computation, the work of gloo's threads is the communication, not the call
// that launches it, and the rank comes from the file name.
func TestTraceHost(t *testing.T) {
	run := readTraceText(t, "logs/worker_12.pt.trace.json", `[
{"name":"aten::mm","cat":"cpu_op","ph":"X","ts":5,"dur":10,"pid":1,"tid":"thread 1"},
{"name":"gloo:all_reduce","cat":"user_annotation","ph":"X","ts":1e1,"dur":10,"pid":1,"tid":2},
{"name":"c10d::allreduce_","cat":"cpu_op","ph":"X","ts":30,"dur":1,"pid":1,"tid":2}
]`)
	want := []runs.Span{
		one(12, "1/2", runs.SpanCommunication, "gloo:all_reduce", 5e-6, 10e-6),
		one(12, "1/2", runs.SpanOther, "c10d::allreduce_", 25e-6, 1e-6),
		one(12, "1/thread 1", runs.SpanCompute, "aten::mm", 0, 10e-6),
	}
	if d := cmp.Diff(want, run.Spans); d != "" || len(run.Problems) > 0 {
		t.Errorf("%v (-want +got)\n%s", run.Problems, d)
	}
}

// TestTraceWithoutCategories reads a DDP step with gloo in the form of PyTorch
// 1.13 built without Kineto (Debian's package): a bare array without
// categories. The work of gloo's thread is the collective, not the call that
// launches it.
func TestTraceWithoutCategories(t *testing.T) {
	run := readTraceText(t, "rank0.json", `[
	{"name": "ProfilerStep#3", "ph": "X", "ts": 112811, "dur": 34855, "tid": 1, "pid": "CPU functions", "args": {}},
	{"name": "aten::randn", "ph": "X", "ts": 112820, "dur": 150, "tid": 1, "pid": "CPU functions", "args": {}},
	{"name": "DistributedDataParallel.forward", "ph": "X", "ts": 113051, "dur": 492, "tid": 1, "pid": "CPU functions", "args": {}},
	{"name": "aten::linear", "ph": "X", "ts": 113100, "dur": 100, "tid": 1, "pid": "CPU functions", "args": {}},
	{"name": "autograd::engine::evaluate_function: TBackward0", "ph": "X", "ts": 114000, "dur": 30, "tid": 1, "pid": "CPU functions", "args": {}},
	{"name": "torch::autograd::AccumulateGrad", "ph": "X", "ts": 114100, "dur": 20, "tid": 1, "pid": "CPU functions", "args": {}},
	{"name": "c10d::allreduce_", "ph": "X", "ts": 114543, "dur": 18, "tid": 1, "pid": "CPU functions", "args": {}},
	{"name": "gloo:all_reduce", "ph": "X", "ts": 114586, "dur": 32635, "tid": 2, "pid": "CPU functions", "args": {}},
	{"name": "Optimizer.step#SGD.step", "ph": "X", "ts": 147300, "dur": 200, "tid": 1, "pid": "CPU functions", "args": {}}
]`)
	us := func(kind, name string, start, length float64) runs.Span {
		return one(0, "CPU functions/1", kind, name, start*1e-6, length*1e-6)
	}
	want := []runs.Span{
		us(runs.SpanOther, "ProfilerStep#3", 0, 34855),
		us(runs.SpanCompute, "aten::randn", 9, 150),
		us(runs.SpanCompute, "DistributedDataParallel.forward", 240, 492),
		us(runs.SpanCompute, "autograd::engine::evaluate_function: TBackward0", 1189, 30),
		us(runs.SpanCompute, "torch::autograd::AccumulateGrad", 1289, 20),
		us(runs.SpanOther, "c10d::allreduce_", 1732, 18),
		us(runs.SpanCompute, "Optimizer.step#SGD.step", 34489, 200),
		one(0, "CPU functions/2", runs.SpanCommunication, "gloo:all_reduce", 1775e-6, 32635e-6),
	}
	if diff := cmp.Diff(want, run.Spans, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
		t.Error(diff)
	}
}

// TestTraceHorovod reads Horovod's timeline: a bare array that is not closed,
// with begin and end events and one process per tensor.
func TestTraceHorovod(t *testing.T) {
	run := readTraceText(t, "timeline.json", `[
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "DistributedAdam/grad_0"}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 100, "pid": 1},
{"ph": "E", "ts": 150, "pid": 1},
{"ph": "B", "name": "ALLREDUCE", "ts": 150, "pid": 1},
{"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 151, "pid": 1},
{"ph": "E", "ts": 152, "pid": 1},
{"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 153, "pid": 1},
{"ph": "E", "ts": 190, "pid": 1},
{"ph": "E", "ts": 200, "pid": 1, "args": {"dtype": "float32", "shape": "[10]"}},
`)
	want := []runs.Span{
		one(0, "1/", runs.SpanCommunication, "NEGOTIATE_ALLREDUCE", 0, 50e-6),
		one(0, "1/", runs.SpanCommunication, "ALLREDUCE", 50e-6, 50e-6),
		one(0, "1/", runs.SpanOther, "MEMCPY_IN_FUSION_BUFFER", 51e-6, 1e-6),
		one(0, "1/", runs.SpanCommunication, "NCCL_ALLREDUCE", 53e-6, 37e-6),
	}
	if d := cmp.Diff(want, run.Spans); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if len(run.Problems) > 0 {
		t.Errorf("problems %v", run.Problems)
	}
}

// TestTraceRanks reads one file with several ranks, each a process.
func TestTraceRanks(t *testing.T) {
	run := readTraceText(t, "all.json", `{"traceEvents":[
{"name":"compute","ph":"X","ts":0,"dur":1,"pid":5,"tid":1},
{"name":"ncclAllReduce","ph":"X","ts":1,"dur":1,"pid":6,"tid":1},
{"name":"process_name","ph":"M","pid":5,"args":{"name":"Rank 0"}},
{"name":"process_name","ph":"M","pid":6,"args":{"name":"rank:1 (GPU 1)"}}]}`)
	want := []runs.Span{
		one(0, "5/1", runs.SpanCompute, "compute", 0, 1e-6),
		one(1, "6/1", runs.SpanCommunication, "ncclAllReduce", 1e-6, 1e-6),
	}
	if d := cmp.Diff(want, run.Spans); d != "" || len(run.Problems) > 0 {
		t.Errorf("%v (-want +got)\n%s", run.Problems, d)
	}
}

func TestTraceDamaged(t *testing.T) {
	for _, c := range []struct {
		name, text, says string
		spans            int
	}{
		{"cut in an event", kineto[:strings.Index(kineto, `"aten::convolution"`)], "the file ends inside the JSON document; the content before it is read", 3},
		{"no JSON", `{"traceEvents":[{"name":"a","ph":"X","ts":0,"dur":1,"pid":0,"tid":0}, oops`, "reading stops at byte 70: expected an event, got 'o'", 1},
		{"lost colon", `{"traceEvents":[{"name" "ph":"X"}]}`, "reading stops at byte 16: malformed JSON value", 0},
		{"deep", `{"traceEvents":[{"args":` + strings.Repeat("[", 1000), "the file ends inside the JSON document", 0},
		{"no times", `[{"ph":"X","name":"a","ts":1},{"ph":"X","name":"a","ts":"soon","dur":1},{"ph":"X","ts":1,"dur":-1},{"ph":"X","ts":1e300,"dur":1}]`, "4 spans are not read: start or duration missing", 0},
		{"ends", `[{"ph":"E","ts":1,"pid":1},{"ph":"B","ts":1,"pid":1,"name":"x"}]`, "1 span ends have no begin", 0},
		{"begins", `[{"ph":"B","ts":1,"pid":1,"name":"x"}]`, "1 spans have no end", 0},
		{"nothing", `[]`, "none of the 0 events of the trace is a span", 0},
		{"zeros", "[{\x00", "the file ends inside the JSON document", 0},
		{"after key", `{"a" 1}`, "expected : after a key", 0},
		{"ends in a string", `{"a": "b\`, "the file ends inside the JSON document", 0},
		{"ends in a word", `{"a": tr`, "the file ends inside the JSON document", 0},
		{"closes nothing", `{"a": ]`, `expected a value, got ']'`, 0},
	} {
		run := readTraceText(t, "rank0.json", c.text)
		var says []string
		for _, p := range run.Problems {
			says = append(says, p.String())
		}
		if all := strings.Join(says, "\n"); !strings.Contains(all, "rank0.json: ") || !strings.Contains(all, c.says) {
			t.Errorf("%s: problems %q, expected %q", c.name, all, c.says)
		}
		if len(run.Spans) != c.spans {
			t.Errorf("%s: %d spans, expected %d", c.name, len(run.Spans), c.spans)
		}
	}
	broken := errors.New("the disk broke")
	if _, _, err := readTrace("f", io.MultiReader(strings.NewReader(kineto[:900]), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestTraceNanoseconds(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "12": 12000, "1.5": 1500, "1700000000000000.1239": 1700000000000000123, "-2.001": -2001, "1.5e3": 1500000,
		".5": 500, "1e-3": 1,
	} {
		if got, ok := parseMicroseconds([]byte(text)); !ok || got != want {
			t.Errorf("%s: %d, %v, expected %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "-", ".", "x", "1x", "1e300", "99999999999999999999", "NaN", "nul"} {
		if got, ok := parseMicroseconds([]byte(text)); ok {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestTraceRecognised(t *testing.T) {
	for text, want := range map[string]bool{
		kineto: true, " [ \n {\"ph\":\"X\",\"ts\":1}]": true, `{"traceEvents": []`: true,
		`{"schemaVersion": 1, "deviceProperties": [`: true,
		`[{"a": 1}]`: false, `{"log_history": []}`: false, "": false, "[": false, ",time_per_epoch": false,
	} {
		if got := isTrace("", []byte(text)); got != want {
			t.Errorf("%.40q: %v", text, got)
		}
	}
}

// traceText generates a trace of n events whose spans are nested like those of
// operators.
type traceText struct {
	n, i int
	rest []byte
}

func (g *traceText) Read(p []byte) (int, error) {
	for len(g.rest) == 0 {
		switch {
		case g.i == 0:
			g.rest = append(g.rest, `{"schemaVersion": 1, "distributedInfo": {"rank": 1, "world_size": 2}, "traceEvents": [`...)
		case g.i > g.n:
			return 0, io.EOF
		case g.i == g.n:
			g.rest = append(g.rest, `{"ph": "M"}]}`...)
		default:
			outer, inner := g.i/8, g.i%8
			g.rest = fmt.Appendf(g.rest[:0], `
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::op%d", "pid": 4242, "tid": 4242,
    "ts": 170000000%05d%02d.250, "dur": %d.125,
    "args": {
      "External id": %d, "Record function id": 0, "Sequence number": %d, "Fwd thread id": 0, "Ev Idx": %d
    }
  },`, inner, outer%100000, inner, 90-2*inner, g.i, outer, g.i)
		}
		g.i++
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

// TestTraceBounded checks that reading a trace takes memory in proportion to
// its spans, not to its length, and that only the outermost of eight nested
// operators is kept.
func TestTraceBounded(t *testing.T) {
	const events = 400_000
	run, report, err := readTrace("rank1.json", &traceText{n: events})
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Problems) > 0 || report.Records != events || len(run.Spans) != events/8 || cap(run.Spans) > events/4 {
		t.Errorf("%d events, %d spans, %v", report.Records, len(run.Spans), run.Problems)
	}
}

func BenchmarkTrace(b *testing.B) {
	text, err := io.ReadAll(&traceText{n: 40_000})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		run, _, err := readTrace("rank1.json", bytes.NewReader(text))
		if err != nil || len(run.Problems) > 0 {
			b.Fatal(err, run.Problems)
		}
	}
}

func FuzzTrace(f *testing.F) {
	f.Add(kineto)
	f.Add(`[{"ph":"B","ts":1,"pid":1,"name":"x"},{"ph":"E","ts":2.5,"pid":1},`)
	f.Add(`[{"0"0`) // no JSON already, though the file ends here
	f.Add(`{"traceEvents":[{"ph":"X","ts":1e2,"dur":3,"cat":"kernel","name":"nccl\u0041"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		whole, _, err := readTrace("rank0.json", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		bytewise, _, err := readTrace("rank0.json", iotest.OneByteReader(strings.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(whole, bytewise); d != "" {
			t.Fatalf("byte by byte it reads otherwise:\n%s", d)
		}
		recordtest.ReadAndCheckFormat(t, Format(), "rank0.json", []byte(text))
	})
}
