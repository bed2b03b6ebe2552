// Package nn is the front end of a network: layers and losses as operations of
// a gorgonia expression graph, with symbolic gradients, and the initial values
// of their parameters.
//
// # Model
//
// A Graph collects what a network consists of: inputs, parameters, states (the
// running statistics of batch norm), outputs and a loss. Its methods are
// layers: they create the parameters they need, under the names that PyTorch
// would use ("down.0.a.conv.weight"). The first error sticks: later calls do
// nothing, and Err returns it, so a network reads like its drawing.
//
// The functions of the same names (Conv2D, BatchNorm, …) are the operations
// themselves, on gorgonia nodes, for a layer of one's own.
//
// Nothing is computed here. gorgonia gives the graph, its type system and the
// differentiation (Graph.Gradients); an engine runs what internal/plan lowers
// the graph to. Calling an operation's Do is an error that says so.
//
// Shapes are static and in the order NCHW: batch, channels, height, width.
// Volumes have a depth before the height (NCDHW); what a linear layer reads and
// writes has batch and features alone.
package nn
