// Package bpf holds stageprof's kernel side: the BPF programs in C, and what
// bpf2go makes of them.
package bpf

//go:generate go tool bpf2go -target amd64,arm64 -cflags "-O2 -g -Wall -Wextra -Wno-unused-parameter -Werror -mcpu=v3" -type counter -type gil_state -type gil_reading -type part -type span_record -type attribution -type target_end -type thread_end -type marker -type autograd -type source -type range -type role -type leaving -type allocation_event -type size_kind -type debt_role -type debt_kind -type open_stage -type python_stacks -type python_sample -type match_of -type event_kind -type call_event -type off_event -type wait_event Probe stageprof.bpf.c
