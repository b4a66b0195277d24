#include "textflag.h"

// func callLoop(address uintptr, n int)
TEXT ·callLoop(SB), NOSPLIT, $16-16
	MOVQ address+0(FP), R12
	MOVQ n+8(FP), R13
loop:
	CALL R12
	DECQ R13
	JNZ  loop
	RET
