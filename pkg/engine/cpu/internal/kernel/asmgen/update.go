package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// update writes the optimizers. No parameter may be named g, a register in assembly.
func update(a *assembler) {
	adam(a)
	sgd(a, "momentum"+a.setName(), true)
	sgd(a, "sgd"+a.setName(), false)
}

func (a *assembler) loadLaneConstants(p reg.GPVirtual, n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = a.newVector()
		a.VBROADCASTSS(operand.Mem{Base: p, Disp: 4 * i}, v[i])
	}
	return v
}

func adam(a *assembler) {
	a.beginFunction("adam"+a.setName(), "func(w, grad, m, v, c *float32, n int)", "performs one step of Adam.")
	r := a.loadParams("w", "grad", "m", "v", "c", "n")
	w, g, m, v, k := r[0], r[1], r[2], r[3], a.loadLaneConstants(r[4], 8)
	a.loopFloats(r[5], r[:4], func() {
		weight, d, first, second, root := a.newVector(), a.newVector(), a.newVector(), a.newVector(), a.newVector()
		a.loadVector(mem(w, 0), weight)
		a.loadVector(mem(g, 0), d)
		a.VFMADD231PS(weight, k[0], d)
		a.VMULPS(d, k[2], first)
		a.VFMADD231PS(a.loadOperand(mem(m, 0)), k[1], first)
		a.storeVector(first, mem(m, 0))
		a.VMULPS(d, d, d)
		a.VMULPS(d, k[4], second)
		a.VFMADD231PS(a.loadOperand(mem(v, 0)), k[3], second)
		a.storeVector(second, mem(v, 0))
		a.VSQRTPS(second, root)
		a.VFMADD213PS(k[6], k[5], root)
		a.VMULPS(k[7], first, first)
		a.VDIVPS(root, first, first)
		a.VSUBPS(first, weight, weight)
		a.storeVector(weight, mem(w, 0))
	})
}

func sgd(a *assembler, name string, momentum bool) {
	var w, g, buf reg.GPVirtual
	var n reg.GPVirtual
	var k []reg.VecVirtual
	var moved []reg.GPVirtual
	if momentum {
		a.beginFunction(name, "func(w, grad, buf, c *float32, n int)", "performs one step of gradient descent with momentum.")
		r := a.loadParams("w", "grad", "buf", "c", "n")
		w, g, buf, n, k, moved = r[0], r[1], r[2], r[4], a.loadLaneConstants(r[3], 3), r[:3]
	} else {
		a.beginFunction(name, "func(w, grad, c *float32, n int)", "performs one step of gradient descent without momentum.")
		r := a.loadParams("w", "grad", "c", "n")
		w, g, n, k, moved = r[0], r[1], r[3], a.loadLaneConstants(r[2], 3), r[:2]
	}
	a.loopFloats(n, moved, func() {
		weight, d := a.newVector(), a.newVector()
		a.loadVector(mem(w, 0), weight)
		a.loadVector(mem(g, 0), d)
		a.VFMADD231PS(weight, k[0], d)
		if momentum {
			a.VFMADD231PS(a.loadOperand(mem(buf, 0)), k[1], d)
			a.storeVector(d, mem(buf, 0))
		}
		a.VFNMADD231PS(d, k[2], weight)
		a.storeVector(weight, mem(w, 0))
	})
}
