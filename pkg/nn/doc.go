// Package nn builds a network as a gorgonia expression graph: layers and losses are
// operations of the graph, gradients are derived symbolically, and parameters have
// initial values.
//
// # Model
//
// A Graph collects the parts of a network: inputs, parameters, states (the running
// statistics of batch norm), outputs and a loss. Its methods add layers. A layer creates
// the parameters that it needs, under PyTorch's names ("down.0.a.conv.weight"). After the
// first error all further calls do nothing, and Err returns that error, so the code of a
// network needs only one check.
//
// The functions with the same names (Conv2D, BatchNorm, …) are the operations on gorgonia
// nodes, for custom layers.
//
// This package computes nothing. gorgonia provides the graph, its types and the
// differentiation (Graph.Gradients). The package internal/plan lowers a graph to a
// program, which an engine runs. The method Do of an operation returns an error that
// explains this.
//
// Shapes are static and in the order NCHW: batch, channels, height, width. Volumes have a
// depth before the height (NCDHW). The inputs and outputs of linear layers have only
// batch and features.
package nn
