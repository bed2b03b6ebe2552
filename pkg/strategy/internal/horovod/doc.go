// Package horovod implements the exchange of gradients of Horovod (Sergeev and Del Balso
// 2018, arXiv:1802.05799): rank 0 is the coordinator. Each rank announces the tensors whose
// gradients it has computed, in any order. In each cycle the coordinator tells all ranks which
// tensors all of them have announced. The ranks then all-reduce these tensors, several at a
// time in a fusion buffer.
//
// A tensor that has been reduced once has a number in the response cache, which is the same on
// all ranks. From then on, one bit announces it.
//
// The cycles of a rank go on while it has announced tensors that are not reduced yet. Horovod's
// go on forever; but a tensor is reduced only after all ranks have announced it, so a rank
// without such tensors delays nothing.
//
// The order of the additions, and thus the last bit of a sum, does not depend on which tensors
// happen to be fused: see fusionBuffer.
package horovod
