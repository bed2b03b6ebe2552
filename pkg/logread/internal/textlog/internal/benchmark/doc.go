// Package benchmark reads the lines of benchmarks and of their loggers: MLPerf and DLLogger, the
// throughput of Horovod's synthetic benchmark, tf_cnn_benchmarks and benchy, and the times of all-reduces
// of nccl-tests and the OSU micro-benchmarks. Each format's file begins with examples of its lines.
package benchmark
