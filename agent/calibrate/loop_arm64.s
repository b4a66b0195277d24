#include "textflag.h"

// func callLoop(address uintptr, n int)
TEXT ·callLoop(SB), NOSPLIT, $16-16
	MOVD address+0(FP), R19
	MOVD n+8(FP), R20
loop:
	CALL (R19)
	SUB  $1, R20
	CBNZ R20, loop
	RET
