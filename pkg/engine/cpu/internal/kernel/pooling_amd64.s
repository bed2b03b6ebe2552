#include "textflag.h"

// Max pooling and its gradient. WINDOW calls BODY for each element of a window of R12 rows of R13
// elements, R8 bytes apart; both are at least 1. first points to the window, SI to the element.
#define WINDOW(first, BODY) \
	MOVQ first, R9; \
	MOVQ R12, R10; \
row: \
	MOVQ R9, SI; \
	ADDQ R8, R9; \
	MOVQ R13, R11; \
column: \
	BODY; \
	ADDQ $32, SI; \
	SUBQ $1, R11; \
	JGT  column; \
	SUBQ $1, R10; \
	JGT  row

// ONES sets each int32 of y to 1, to count elements.
#define ONES(y) \
	VPCMPEQD y, y, y; \
	VPSRLD   $31, y, y

#define NORMALIZE(y) \
	VFMADD213PS Y1, Y0, y; \
	VMAXPS      y, Y2, y

// Y4 is the maximum, Y5 its index and Y6 the index of the element. The comparison is "less", so that the
// first of equal elements stays.
#define MAXIMUM \
	VMOVUPS   (SI), Y7; \
	NORMALIZE(Y7); \
	VCMPPS    $0x11, Y7, Y4, Y8; \
	VBLENDVPS Y8, Y7, Y4, Y4; \
	VBLENDVPS Y8, Y6, Y5, Y5; \
	VPADDD    Y3, Y6, Y6

TEXT ·maxPoolAVX2(SB), NOSPLIT, $0-72
	MOVQ    x+0(FP), AX
	MOVQ    y+8(FP), CX
	MOVQ    p+16(FP), SI
	MOVQ    index+24(FP), DX
	MOVQ    count+32(FP), BX
	MOVQ    kh+40(FP), R12
	MOVQ    kw+48(FP), R13
	MOVQ    row+56(FP), R8
	MOVQ    step+64(FP), DI
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVUPS 64(SI), Y2
	ONES(Y3)

window:
	CMPQ         BX, $1
	JLT          window_done
	VXORPS       Y5, Y5, Y5
	VXORPS       Y6, Y6, Y6
	VMOVUPS      (AX), Y4
	NORMALIZE(Y4)
	WINDOW(AX, MAXIMUM)
	VMOVUPS      Y4, (CX)
	VEXTRACTI128 $1, Y5, X4
	VPACKUSDW    X4, X5, X4
	VPACKUSWB    X4, X4, X4
	VMOVQ        X4, (DX)
	ADDQ         DI, AX
	ADDQ         $32, CX
	ADDQ         $8, DX
	SUBQ         $1, BX
	JMP          window

window_done:
	VZEROUPPER
	RET

// Y1 is the gradient of the output, Y2 the index of the maximum and Y3 that of the element.
#define ADDGRADIENT \
	VPCMPEQD Y3, Y2, Y4; \
	VANDPS   Y1, Y4, Y4; \
	VADDPS   (SI), Y4, Y4; \
	VMOVUPS  Y4, (SI); \
	VPADDD   Y0, Y3, Y3

TEXT ·maxPoolGradAVX2(SB), NOSPLIT, $0-64
	MOVQ index+0(FP), AX
	MOVQ dy+8(FP), CX
	MOVQ dx+16(FP), DX
	MOVQ count+24(FP), BX
	MOVQ kh+32(FP), R12
	MOVQ kw+40(FP), R13
	MOVQ row+48(FP), R8
	MOVQ step+56(FP), DI
	ONES(Y0)

window:
	CMPQ      BX, $1
	JLT       window_done
	VXORPS    Y3, Y3, Y3
	VMOVUPS   (CX), Y1
	VPMOVZXBD (AX), Y2
	WINDOW(DX, ADDGRADIENT)
	ADDQ      DI, DX
	ADDQ      $32, CX
	ADDQ      $8, AX
	SUBQ      $1, BX
	JMP       window

window_done:
	VZEROUPPER
	RET
