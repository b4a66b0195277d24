/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Everything that the programs share with the agent: the layouts of map keys
 * and values, and the lists of states and losses. bpf2go turns them into Go
 * types; a Go test compares both layouts.
 */
#ifndef STAGEPROF_TYPES_H
#define STAGEPROF_TYPES_H

#define MAX_DEPTH 32  /* open stages kept per thread; the marker library keeps 64 */
#define SLOT_DEPTH 64 /* open stages in a slot of the marker library */
#define MAX_FRAMES 16 /* open functions kept per thread */
#define MAX_FUNCTIONS 1024
#define SPAN_CALLS 16     /* kinds of calls kept per span */
#define CALL_STACK 64     /* of all open stages of a thread together */
#define NAME_SIZE 128     /* a stage name's text with its NUL */
#define HIST_BUCKETS 32   /* log2 of nanoseconds */
#define SOURCES 16        /* room for kinds of enum source; a power of two */
#define MATCH_CELLS 16384 /* states times classes of the expression that names must match */
#define PEEK_TRIES 64     /* copies of a thread's record that are made until one is whole */
#define PYTHON_FRAMES 32  /* innermost frames kept of a Python stack */
#define PYTHON_WORDS 32   /* of a structure of CPython's that are read at once */
#define STREAMS 1024      /* streams whose work is followed */
#define CONTEXTS 256      /* numbers of contexts, 0 among them: of those that have none */
#define REUSE_TRIES 8     /* for the number of a stream that has ended */
#define SEGMENTS 32       /* runs of one stage's work kept per stream, a power of two */
#define WAIT_STREAMS 64   /* streams that one wait can be for */
#define WAIT_OWNERS 16    /* stages that one wait is told apart for */

enum gil_state {
    GIL_NONE,
    GIL_UNKNOWN,
    GIL_FREE,
    GIL_HELD,
    GIL_DISABLED,
};

/* How to read the GIL's state; agent/gil decides which. */
enum gil_reading {
    GIL_METHOD_NONE,
    GIL_METHOD_UNKNOWN,
    GIL_METHOD_THREAD_LOCAL,
    GIL_METHOD_CURRENT_THREAD_STATE,
};

/* Of which calls the Python stack is read. */
enum python_stacks {
    PYTHON_STACKS_OFF,
    PYTHON_STACKS_SAMPLED,
    PYTHON_STACKS_ALL,
};

/* What a thread's time is spent on: at every moment one of these. */
enum part {
    PART_RUNNING,      /* on a CPU, outside driver calls */
    PART_CUDA_CPU,     /* on a CPU, inside driver calls */
    PART_CUDA_BLOCKED, /* off the CPU, inside driver calls */
    PART_GIL_WAIT,     /* asleep on a futex of Python's lock */
    PART_RUNNABLE,     /* ready to run, without a CPU */
    PART_BLOCKED_FUTEX,
    PART_BLOCKED_POLL,
    PART_BLOCKED_READ,
    PART_BLOCKED_SLEEP,
    PART_BLOCKED_FAULT, /* outside any system call */
    PART_BLOCKED_OTHER,
    PARTS,
};

enum attribution {
    ATTRIBUTION_NONE,
    ATTRIBUTION_OWN,
    ATTRIBUTION_AUTOGRAD,
    ATTRIBUTION_PROCESS,
};

/* Why something that was seen is not accounted. COUNT_ENTERED is no loss but
 * the number of calls seen: it must equal the rows' sum plus the lost calls. */
enum counter {
    COUNT_ENTERED,
    LOST_RETURN,       /* calls whose return was never seen: longjmp, exception, no return probe */
    LOST_IN_FLIGHT,    /* calls that were still running when the window ended */
    LOST_AT_EXIT,      /* calls in which the thread or process ended */
    LOST_ROW,          /* calls that found no room for a new row */
    LOST_IMPOSSIBLE,   /* calls with a duration that cannot be */
    LOST_THREAD,       /* calls of a thread for which no state could be made */
    LOST_STAGE_ROW,    /* spans that found no room for a new row */
    LOST_OUTSIDE_ROW,  /* threads whose time outside any stage found no room for a new row */
    LOST_STAGE_DEPTH,  /* stages nested deeper than MAX_DEPTH */
    LOST_SPAN_RECORD,  /* spans that found no room in the ring buffer (their totals are counted) */
    LOST_STAGE_THREAD, /* markers of a thread for which no state could be made */
    LOST_MARKER,       /* open stages whose end was missed and that were closed late */
    LOST_PATH,         /* stages that found no room in the table of paths */
    LOST_NAME_FULL,    /* stages whose name found no room in the table of names */
    LOST_NAME_UNREADABLE, /* stages whose name could not be read */
    LOST_NAME_REGISTERED, /* stages whose name is a handle that only a tool could resolve */
    LOST_RANGE_START,     /* ranges of start and end, which belong to no thread */
    LOST_THREAD_STATE,    /* new threads for which no state could be made when they began */
    LOST_THREAD_BEGIN,    /* threads whose begin was not seen */
    LOST_THREAD_NAME,     /* threads that found no room in the table of threads */
    LOST_FUNCTION_EXIT,   /* functions left without an exit: exception, longjmp; closed late */
    LOST_FUNCTION_DEPTH,  /* functions entered below MAX_FRAMES open ones */
    LOST_REGION_ROW,      /* regions that found no room for a new row */
    LOST_REGION_PARTS,    /* times in a region and stage that found no room for a new row */
    LOST_ALLOCATION_ROW,  /* allocations and frees that found no room for a new row */
    LOST_ALLOCATION_SIZE, /* allocations whose size found no room until they are freed */
    COUNT_SAMPLES,        /* calls whose Python stack was read, or tried to be */
    COUNT_SAMPLE_TIME,    /* nanoseconds that this took the target's threads */
    LOST_SAMPLE_STATE,    /* samples of a thread for which no state could be made */
    LOST_SAMPLE_READ,     /* samples whose frames could not be read */
    LOST_SAMPLE_ROOM,     /* samples that found no room in the ring buffer */
    COUNT_LOOKS,          /* looks at a thread's Python stack for functions that are stages */
    COUNT_LOOK_TIME,      /* nanoseconds that these took the target's threads */
    LOST_LOOK_STATE,      /* looks at a thread for which no state could be made */
    LOST_LOOK_READ,       /* looks at a stack that could not be read */
    LOST_LOOK_DEPTH,      /* looks that found no such function among the innermost frames */
    LOST_DEBT_STREAM,     /* calls with a stream that found no room in the table of streams */
    LOST_DEBT_EVENT,      /* events that found no room when they were recorded */
    LOST_DEBT_CONTEXT,    /* contexts that found no number of their own */
    LOST_DEBT_THREAD,     /* waits of a thread for which no memory could be had */
    LOST_DEBT_ROW,        /* parts of waits that found no room for a new row */
    LOST_TIMELINE_CALL,   /* calls that found no room in the timeline's ring buffer */
    LOST_TIMELINE_CUT,    /* … that their thread's end cut */
    LOST_TIMELINE_OFF,    /* times off the CPU … */
    LOST_TIMELINE_WAIT,   /* streams that a call waited for … */
    /* Of a metered recording: what the target pays for besides calls. */
    COUNT_IDLE,        /* probes of the driver that were hit for no outermost call in the window */
    COUNT_HITS,        /* all other probes that were hit */
    COUNT_EXITS,       /* of these, the exits of functions, which may be single-stepped */
    COUNT_SWITCH_TIME, /* nanoseconds that the scheduler's programs took for the target */
    COUNTERS,
};

/* What ended the target's program, if anything did. */
enum target_end {
    TARGET_RUNS,
    TARGET_EXECED,
};

/* Which marker a probe stands on; the probe's cookie. */
enum marker {
    MARKER_BEGIN,
    MARKER_END,
    MARKER_PROCESS_BEGIN,
    MARKER_PROCESS_END,
};

/* The prctl option of marker 0, as marker/c/mark.c has it. */
#define MARKER_ANNOUNCED 0x53505200

/* What opens and closes stages. */
enum source {
    SOURCE_MARKER,       /* the marker library copy whose slot is followed */
    SOURCE_OTHER_MARKER, /* another copy of it */
    SOURCE_NVTX,
    SOURCE_RECORD_FUNCTION,
    SOURCE_FUNCTION, /* a function that is a stage while it runs */
    SOURCE_PAIR = 8, /* a pair of static probes; each has a number of its own, from here on */
};

#define PAIR_NAME (5ULL << 61) /* with a source: stands for the name of a pair's begin */

/* What a probe on another source's function does; its cookie: the source, then
 * this, then the number of the argument that holds the name, a byte each. */
enum range {
    RANGE_POP,
    RANGE_PUSH_TEXT,       /* the argument is a char pointer */
    RANGE_PUSH_STRING,     /* … points to a std::string: its first word is one */
    RANGE_PUSH_ATTRIBUTES, /* … points to NVTX's event attributes */
    RANGE_PUSH_WIDE,       /* … is a wchar_t pointer */
    RANGE_START,           /* is not followed, only counted */
    RANGE_PUSH_REGISTER,   /* … is the number of a register that is a char pointer */
    RANGE_PUSH_MEMORY,     /* … of one that points near a char pointer; the cookie's upper half
                              says how far from it */
    RANGE_PUSH_NAMED,      /* the name is that of the pair, PAIR_NAME | source */
    RANGE_HANDLE,          /* the range just pushed is known by the argument */
    RANGE_POP_HANDLE,      /* ends the range that is known by it */
    RANGE_POP_HANDLE_AT,   /* … that the argument points to a pointer to, which the upper half of
                              the cookie is added to */
};

/* A range's handle is an address that is aligned like all that is allocated. */
#define HANDLE_BITS(address) ((u32)((address) >> 4))

/* What a function is followed as. */
enum role {
    ROLE_STAGE = 1,
    ROLE_REGION = 2,
};

/* When the instruction under the probe on a function's exit leaves it. */
enum leaving {
    LEAVES_ALWAYS,
    LEAVES_IF,          /* the number is the condition code of a conditional jump */
    LEAVES_BY_REGISTER, /* … of the register that holds where a jump goes */
};

/* The cookie of a probe on a function's entry or exit. */
#define COOKIE_FUNCTION(c) ((u16)(c))
#define COOKIE_ROLES(c) ((u8)((c) >> 16))
#define COOKIE_LEAVING(c) ((u8)((c) >> 24))
#define COOKIE_NUMBER(c) ((u8)((c) >> 32))

/* What a tracing point of PyTorch's allocator tells. */
enum allocation_event {
    ALLOCATION_MADE,
    ALLOCATION_FREED,
};

/* A tracing point's cookie: what it tells, and where the pointer and the size
 * are: a register, or memory at a distance from where it points. */
#define COOKIE_ALLOCATION(c) ((u8)(c))
#define COOKIE_POINTER(c) ((u32)((c) >> 8) & 0xffffff)
#define COOKIE_SIZE(c) ((u32)((c) >> 32) & 0xffffff)
#define OPERAND_REGISTER(o) ((u8)(o)&15)
#define OPERAND_IN_MEMORY(o) ((u8)(o) >> 4 & 1)
#define OPERAND_DISPLACEMENT(o) ((s16)((o) >> 8))

/* Which function of the autograd engine a probe stands on; the low half of its
 * cookie. The high half is the number of the argument that points to the
 * shared pointer to the GraphTask. */
enum autograd {
    AUTOGRAD_EXECUTE,  /* on the thread that called backward: the pass begins */
    AUTOGRAD_EVALUATE, /* on any thread: one function of the pass */
};

/* Where a call's size is. */
enum size_kind {
    SIZE_NONE,
    SIZE_ARGUMENT, /* argument << shift */
    SIZE_COPY_2D,  /* CUDA_MEMCPY2D: WidthInBytes * Height */
    SIZE_COPY_3D,  /* CUDA_MEMCPY3D: WidthInBytes * Height * Depth */
};

/* What a driver function means for the work that streams have before them. */
enum debt_role {
    DEBT_NONE,
    DEBT_ENQUEUE,      /* one more operation on its stream */
    DEBT_WAIT_STREAM,  /* waits for all that its stream has before it */
    DEBT_WAIT_EVENT,   /* … for what was before an event */
    DEBT_WAIT_CONTEXT, /* … for all streams of the current context */
    DEBT_WAIT_COPY,    /* … for its stream, on which it is an operation itself */
    DEBT_RECORD_EVENT, /* keeps the point that its stream's work has reached */
    DEBT_FOLLOW_EVENT, /* makes its stream wait for an event */
    DEBT_ASK_STREAM,   /* tells, by success, that its stream has nothing before it */
    DEBT_ASK_EVENT,    /* … that an event is over */
    DEBT_DESTROY_EVENT,
    DEBT_BEGIN_CAPTURE, /* what its stream gets from here on goes into a graph */
    DEBT_END_CAPTURE,
    DEBT_DESTROY_STREAM, /* this one and the following ones are seen at their entry only */
    DEBT_SET_CONTEXT,
    DEBT_PUSH_CONTEXT,
    DEBT_POP_CONTEXT,
};

/* Where a call's stream is, if not in the argument of this number. */
#define STREAM_DEFAULT 0 /* it has no such argument: the default stream */
#define STREAM_CONFIG 15 /* in the structure CUlaunchConfig that the first argument points to */

/* What a record of the timeline is about: its first word. */
enum event_kind {
    EVENT_CALL,
    EVENT_OFF,
    EVENT_WAIT,
};

/* Stands for the CUresult of a call that has not returned. */
#define RESULT_NONE 0xffffffff

/* Whom a wait's time is owed to. */
enum debt_kind {
    DEBT_STAGE,     /* a stage path, maybe the one outside any stage */
    DEBT_FORGOTTEN, /* stages whose work found no more room in the stream's log */
    DEBT_UNSEEN,    /* nothing that was seen; the stream may have had something before */
    DEBT_IDLE,      /* nothing: everything that was seen was over already */
};

/* A driver probe's cookie, packed into 64 bits. */
#define COOKIE_SYMBOL(c) ((u16)(c))
#define COOKIE_SIZE_KIND(c) ((u8)((c) >> 16))
#define COOKIE_SIZE_ARGUMENT(c) ((u8)((c) >> 24)) /* 1 to 6 */
#define COOKIE_SIZE_SHIFT(c) ((u8)((c) >> 32) & 7)
#define COOKIE_SIZE_32BIT(c) ((u8)((c) >> 40) & 1) /* the argument is an unsigned int */
#define COOKIE_DEBT(c) ((u16)((c) >> 48))          /* the following three */
#define DEBT_ROLE(d) ((d)&31)
#define DEBT_STREAM(d) ((d) >> 5 & 15)    /* the number of the argument, or one of STREAM_ */
#define DEBT_PER_THREAD(d) ((d) >> 9 & 1) /* the default stream is the thread's own */

#define PYTHON_NAME (7ULL << 61) /* with a number: stands for the name of a Python function */

#define PATH_NONE 0  /* outside any stage */
#define PATH_OTHER 1 /* stages that found no room */
#define PATH_FIRST 2
/* Stages of PATH_OTHER, which nest, have a row for each depth. */
#define PATH_OTHER_AT(depth) (0xffffff00 + (depth))

#define THREAD_PROCESS 0xffffffff /* the thread of process-wide stages */

struct gil_plan {
    u64 address;          /* CURRENT_THREAD_STATE: of the pointer to the running thread state */
    u64 thread_id_offset; /* of thread_id in a thread state */
    u64 self_below;       /* arm64: pthread_self() is so far below the thread pointer */
    u64 tls_module;       /* THREAD_LOCAL: 0 = static TLS, offset from the thread pointer */
    s64 tls_offset;
    u64 enabled_address; /* free-threaded: of the int that is 0 while there is no lock; else 0 */
    u64 lock_start;      /* the lock itself, with all futexes that threads wait for it on */
    u64 lock_end;
};

/* Where CPython keeps a thread's frames: offsets into its structures. Those of
 * a code object's fields count from code_start. */
struct python_plan {
    u64 interpreters; /* address of the pointer to the newest interpreter */
    u32 interpreter_next;
    u32 interpreter_threads;
    u32 thread_size; /* bytes that hold the three fields */
    u32 thread_next;
    u32 thread_id;
    u32 thread_frame; /* the innermost frame, or what leads to it: */
    u32 via_cframe;   /* thread_frame is of a structure that has the frame … */
    u32 cframe_frame; /* … at this offset */
    u32 frame_size;   /* bytes that hold the fields */
    u32 frame_previous;
    u32 frame_code;
    u32 frame_instruction;
    u32 frame_owner; /* a byte; 0: versions without it */
    u32 frame_copy;  /* free-threaded: number of the copy of the bytecode; 0: there is one */
    u32 code_start;
    u32 code_size;
    u32 code_first_line;
    u32 code_filename;
    u32 code_name;
    u32 code_lines;
    u32 code_version; /* 0: versions without it, for which there are … */
    u32 code_hashed;  /* … a name that always has a hash … */
    u32 text_hash;    /* … and the offset of the hash in a string */
    u32 text_size;    /* bytes of a string's header that hold the next two */
    u32 text_length;
    u32 text_state;
    u32 text_kind; /* position in the state of the size of a character */
    u32 text_ascii;
    u32 text_wide; /* where characters begin that are not ASCII */
};

struct call_key {
    u64 caller; /* return address */
    u32 thread; /* serial number of the thread incarnation */
    u32 path;
    u16 symbol;
    u8 gil;
    u8 attribution;
    u32 region; /* path of the regions that were open */
};
_Static_assert(sizeof(struct call_key) == 24, "call_key");

struct call_row {
    u64 count;
    u64 errors;
    u64 wall;
    u64 cpu;
    u64 bytes;
    u64 gil_wait; /* of other threads meanwhile, if the GIL was held */
    u64 min;
    u64 max;
    u64 hist[HIST_BUCKETS];
};
_Static_assert(sizeof(struct call_row) == 64 + 8 * HIST_BUCKETS, "call_row");

/* One Python frame as it was in the target. The words of its code object tell
 * later whether that is still the same one. */
struct python_frame {
    u64 code;
    u64 instruction; /* a pointer, or before 3.11 a number in its low half */
    u64 filename;
    u64 name;
    u64 lines;
    u64 stamp; /* what no other code object has at the same place, see agent/pystack */
    u32 first_line;
    u32 copy;
};
_Static_assert(sizeof(struct python_frame) == 56, "python_frame");

/* One sampled call, which stands for `weight` calls of its row. Only as many
 * frames are streamed as there are. */
struct python_sample {
    struct call_key call;
    u64 wall;
    u64 cpu;
    u64 gil_wait; /* as in its row */
    u32 weight;
    u32 cut; /* there were more frames */
    u32 frames_len;
    u32 pad;
    struct python_frame frames[PYTHON_FRAMES]; /* innermost first */
};
_Static_assert(sizeof(struct python_sample) == 64 + 56 * PYTHON_FRAMES, "python_sample");

/* A walk through all thread states. It is kept in memory, of whose contents the
 * verifier knows nothing, so that one round of the loop looks like the others. */
struct python_walk {
    u64 newest;      /* interpreter, where the walk began */
    u64 interpreter; /* the next one */
    u64 first;       /* thread state of the newest interpreter */
    u64 state;       /* the next one; 0: on to the next interpreter */
    u64 frame;       /* the thread's innermost one, once found */
    u32 interpreters;
    u32 mine; /* a state of the thread was seen */
};

/* The Python function that a stage has begun in. */
struct python_around {
    u64 begin; /* of the stage, to tell it from another one of the same depth */
    u64 frame;
};

/* What is known of a thread's Python, in task local storage of its own: only
 * threads have it whose calls are sampled or belong to Python functions. */
struct python_state {
    u64 interpreter; /* the newest one when the next two were found */
    u64 thread;      /* the thread's state */
    u64 absent;      /* the newest thread state when the thread was seen to have none */
    struct python_walk walk;
    u64 words[PYTHON_WORDS];
    u64 function; /* name of the innermost function that is a stage, or NAME_HIDDEN */
    u64 frame;    /* its frame */
    struct python_around around[MAX_DEPTH]; /* of the thread's open stages */
    struct python_sample sample;
};

/* What tells the name of a Python function from all others. */
struct python_code {
    u64 name;  /* its address */
    u64 stamp; /* version of the code object, or hash of the text */
};
_Static_assert(sizeof(struct python_code) == 16, "python_code");

struct stage_key {
    u32 thread;
    u32 path;
};
_Static_assert(sizeof(struct stage_key) == 8, "stage_key");

/* Spans of one thread and path. parts partition wall - child. first and last are
 * the begin of the latest span, written before and after everything else: who
 * reads the row meanwhile knows by them whether it is whole and what is in it. */
struct stage_row {
    u64 first;
    u64 count; /* complete spans */
    u64 wall;
    u64 child;
    u64 cpu; /* inclusive of child stages */
    u64 min;
    u64 max;
    u64 parts[PARTS];
    u64 partial_count; /* spans that reach over an edge of the window */
    u64 partial_wall;
    u64 partial_child;
    u64 partial_cpu;
    u64 partial_parts[PARTS];
    u64 hist[HIST_BUCKETS];
    u64 last;
};
_Static_assert(sizeof(struct stage_row) == 96 + 16 * PARTS + 8 * HIST_BUCKETS, "stage_row");

/* The driver calls of one kind that ended in a span. */
struct span_call {
    u16 symbol;
    u8 gil;
    u8 pad;
    u32 count;
    u64 cpu;
    u64 blocked;
};
_Static_assert(sizeof(struct span_call) == 24, "span_call");

/* One span, streamed when it ends. */
struct span_record {
    u32 thread;
    u32 path;
    u64 begin;
    u64 wall;
    u64 child;
    u64 cpu; /* inclusive of child stages */
    u64 parts[PARTS];
    u32 partial;
    u32 calls_len;
    struct span_call calls[SPAN_CALLS];
};
_Static_assert(sizeof(struct span_record) == 48 + 8 * PARTS + 24 * SPAN_CALLS, "span_record");

struct region_key {
    u32 thread;
    u32 path; /* of the stages in which the region was entered */
    u32 region;
    u32 attribution;
};
_Static_assert(sizeof(struct region_key) == 16, "region_key");

/* Times that a region was entered and left. */
struct region_row {
    u64 count;
    u64 wall;
    u64 child; /* wall time of regions inside */
    u64 min;
    u64 max;
    u64 partial_count; /* over an edge of the window, or not seen to be left */
    u64 partial_wall;
    u64 partial_child;
    u64 done; /* count + partial_count, changed last */
};
_Static_assert(sizeof(struct region_row) == 72, "region_row");

struct region_parts_key {
    u32 thread;
    u32 path;   /* of the thread's own stage in which the time was spent */
    u32 region; /* path of the regions in which it was */
};
_Static_assert(sizeof(struct region_parts_key) == 12, "region_parts_key");

/* Of a stage's parts, what was spent in regions. first and last are the time up to
 * which it is known, written before and after everything else: as those of a stage's
 * row. */
struct region_parts_row {
    u64 first;
    u64 parts[PARTS];
    u64 last;
};
_Static_assert(sizeof(struct region_parts_row) == 16 + 8 * PARTS, "region_parts_row");

struct allocation_key {
    u32 thread;
    u32 path;
    u32 region;
    u32 attribution;
};
_Static_assert(sizeof(struct allocation_key) == 16, "allocation_key");

/* Memory that PyTorch's allocator gave out and got back. */
struct allocation_row {
    u64 count;
    u64 bytes;
    u64 freed;
    u64 freed_bytes;
    u64 freed_unknown; /* of freed: given out before the probes were in */
    u64 done;          /* count + freed, changed last */
};
_Static_assert(sizeof(struct allocation_row) == 48, "allocation_row");

/* Where a function's code lies, from its entry on. */
struct function {
    u64 size;
    s64 cold_start; /* of the part that is split off */
    u64 cold_size;
    u32 skip; /* from the entry to the probe */
    u32 pad;
};
_Static_assert(sizeof(struct function) == 32, "function");

struct path_key {
    u64 name; /* address of the name in the target: names are never moved or freed */
    u32 parent;
    u32 pad;
};
_Static_assert(sizeof(struct path_key) == 16, "path_key");

struct stage_name {
    u8 text[NAME_SIZE];
};

/* What an expression is about. */
enum match_of {
    MATCH_STAGES,           /* all stages, of whatever source */
    MATCH_PYTHON_FUNCTIONS, /* which Python functions are stages */
    MATCHES,
};

/* Which names become stages, as a deterministic automaton over a name's bytes and
 * its NUL. A state is the offset of its row in next. */
struct name_match {
    u8 class[256]; /* of a byte: its column */
    u16 start;
    u16 accept; /* the state after the NUL of a name that matches */
    u16 next[MATCH_CELLS];
};
_Static_assert(sizeof(struct name_match) == 260 + 2 * MATCH_CELLS, "name_match");

/* Whether a thread's rows still change. */
enum thread_end {
    THREAD_RUNS,
    THREAD_ENDED,
    THREAD_ENDED_UNSEEDED, /* in the stages that the agent has found it in, all along */
};

struct thread_info {
    u32 tid;
    u32 ns_tid;
    u8 comm[16];
    u32 ended; /* enum thread_end */
};
_Static_assert(sizeof(struct thread_info) == 28, "thread_info");

struct open_stage {
    u64 begin;
    u64 child;     /* wall time of closed child stages */
    u64 child_cpu; /* CPU time of closed child stages */
    u64 parts[PARTS];
    u32 path;
    u16 calls_base;      /* its kinds of calls in the thread's stack of them */
    u8 source;           /* what opened it, and has to close it */
    u8 cut;              /* it was not seen to begin */
    u16 hidden[SOURCES]; /* open ranges inside it that are no stages, by what opened them */
};
_Static_assert(sizeof(struct open_stage) == 64 + 8 * PARTS, "open_stage");

/* A function that has been entered and not been left. */
struct frame {
    u64 sp;   /* at its entry and at its exits */
    u64 back; /* return address, at sp */
    u64 start;
    u64 begin;
    u64 child; /* wall time of regions inside */
    u32 path;
    u32 attribution;
    u32 outer; /* path of the regions around it */
    u16 function;
    u8 roles;
    u8 pad;
};
_Static_assert(sizeof(struct frame) == 56, "frame");

/* A stream: its handle, and whose it is if the handle does not say so. */
struct stream_key {
    u64 handle;
    u64 owner;
};
_Static_assert(sizeof(struct stream_key) == 16, "stream_key");

/* A run of operations of one stage on a stream, up to where the next one begins;
 * or one point at which the stream waits for another one. */
struct stream_segment {
    u64 begin; /* how many operations and points the stream had before it */
    u64 until; /* how far the other stream must get; 0: a run of operations */
    u32 path;
    u32 other; /* that stream's number */
};
_Static_assert(sizeof(struct stream_segment) == 24, "stream_segment");

/* What a stream was given to do. */
struct stream_log {
    u64 enqueued;  /* operations, and points at which it waits for others */
    u64 done;      /* how many of these are known to be over */
    u32 len;       /* segments so far; the last ones are kept */
    u32 context;   /* the number of the context of the first who used it */
    u32 seen_idle; /* nothing can be before what was seen */
    u32 capture;   /* the capture that it takes part in, 0 = none */
    u32 origin;    /* the number of the stream that this capture began with */
    u32 capturing; /* the capture that began with this stream and has not ended */
    u32 ended;     /* the stream has ended, its number may go to another one */
    u32 listed;    /* … and is in the list of such numbers */
    struct stream_key key;
    struct stream_segment segments[SEGMENTS];
};
_Static_assert(sizeof(struct stream_log) == 64 + 24 * SEGMENTS, "stream_log");

/* What a recorded event waits for. */
struct event_point {
    u64 enqueued;
    u32 stream;
    u32 capture; /* it is part of a capture, and waits for nothing */
};
_Static_assert(sizeof(struct event_point) == 16, "event_point");

/* How the streams concern a thread. */
struct debt_thread {
    u64 stream;      /* handle: an argument of the call in progress */
    u64 event;       /* … another one */
    u64 enqueued;    /* DEBT_ASK_STREAM: what the stream had before the question */
    u32 last_stream; /* the stream that it used last: its number + 1, 0 = none */
    u32 has_own;     /* it has used a default stream of its own */
    u32 call;        /* COOKIE_DEBT of the call in progress */
    u32 pad;
    u64 contexts;  /* numbers of the current contexts, a byte each, the top of the stack lowest */
    u64 operation; /* with a timeline: the number of the one that the call gave its stream, + 1 */
};
_Static_assert(sizeof(struct debt_thread) == 56, "debt_thread");

struct waited_stream {
    u64 from; /* before it, another entry has it */
    u64 until;
    u32 stream;
    u32 pad;
};

struct debt_owner {
    u64 operations;
    u32 path;
    u32 pad;
};

/* What a thread's wait is for: the streams, and whose operations these have
 * before them. */
struct debt_wait {
    u64 operations; /* of all owners, and the forgotten ones */
    u64 forgotten;
    u32 streams_len;
    u32 owners_len;
    u32 unseen; /* there may be something that was not seen */
    u32 pad;
    struct waited_stream streams[WAIT_STREAMS];
    struct debt_owner owners[WAIT_OWNERS];
};

/* The waits of one kind for one stage's work. */
struct debt_key {
    u32 thread;
    u32 path;  /* that waits */
    u32 owner; /* path that is waited for, PATH_NONE unless kind is DEBT_STAGE */
    u16 symbol;
    u8 kind;
    u8 pad;
};
_Static_assert(sizeof(struct debt_key) == 16, "debt_key");

struct debt_row {
    u64 waits;
    u64 wall;       /* its share of the waits' time */
    u64 operations; /* that were before the waits */
};
_Static_assert(sizeof(struct debt_row) == 24, "debt_row");

/* One call, streamed when it has returned. */
struct call_event {
    u32 kind;
    u32 thread;
    u64 begin;
    u64 wall;
    u64 cpu;
    u64 size;
    u64 operation; /* the number of the one that it gave its stream, + 1; 0: none */
    u32 path;
    u32 result;
    u32 stream; /* its number + 1, 0: not known, or none */
    u16 symbol;
    u8 gil;
    u8 attribution;
};
_Static_assert(sizeof(struct call_event) == 64, "call_event");

/* One time that a thread was off the CPU. */
struct off_event {
    u32 kind;
    u32 thread;
    u64 begin;
    u64 woken; /* from here on it was ready to run; 0: it was not woken */
    u64 end;
    u8 part; /* what it was off the CPU for, until it was woken */
    u8 in_call;
    u8 cut; /* by an edge of the window */
    u8 pad;
    u32 pad_2;
};
_Static_assert(sizeof(struct off_event) == 40, "off_event");

/* One stream that a call has waited for: for its operations from < n <= until. */
struct wait_event {
    u32 kind;
    u32 thread;
    u64 begin; /* of the call, and its duration */
    u64 wall;
    u64 from;
    u64 until;
    u32 stream; /* its number */
    u32 pad;
};
_Static_assert(sizeof(struct wait_event) == 48, "wait_event");

/* What is known of one thread, in task local storage: it comes and goes with
 * the thread, and only the thread itself and the scheduler switching it write to it. */
struct thread_state {
    u32 serial; /* 0 = not initialised */
    u32 tid;

    /* The call in progress; sp == 0 when there is none. */
    u64 sp;       /* stack pointer at entry: pairs a return with its entry */
    u64 begin;    /* of the call */
    u64 off_base; /* off_charged at entry */
    u64 size;
    u64 gil_wait; /* what the call has caused of it, set at its end */
    u32 path;
    u16 symbol;
    u8 gil;
    u8 attribution;
    u32 call_region; /* path of the regions that are open around it */
    u32 over;        /* the thread has ended, and its rows change no more */

    u32 region;     /* path of the regions that are open now */
    u32 frames;     /* open functions */
    u64 frame_sp;   /* of the innermost one; 0 when there is none */
    u64 frame_back; /* its return address */

    /* Where the thread's time goes. */
    u64 off_since;   /* 0 while running */
    u64 woken;       /* 0 while running or asleep */
    u64 mark;        /* time up to here is accounted */
    u64 off_total;   /* time off the CPU inside the window */
    u64 off_charged; /* … of it, what is accounted: not yet what fell into a program of ours */
    u32 off_part;    /* what it is off the CPU for */
    u32 calls_len;   /* used entries of calls */
    u32 changes;     /* odd while one of our programs is changing this record */
    u32 ended;       /* enum thread_end: somebody accounts for its end */
    u32 gil_waiting; /* it is counted among those who wait for the GIL */
    u32 run_delay;   /* lower half of the kernel's, when the thread was switched out */

    u64 region_since;        /* mark when the regions that are open, or the stage, changed */
    u64 region_parts[PARTS]; /* what was charged since then */

    u64 tls; /* address of Python's thread-local pointer, once known */

    struct debt_thread debt;

    /* Stages. */
    u64 slot;                  /* the thread's slot in the marker library, once known */
    u32 depth;                 /* open stages, also those beyond MAX_DEPTH */
    u32 markers;               /* opened by SOURCE_MARKER, hidden ones too: the slot's depth */
    u32 stage_path;            /* path of the innermost open stage */
    u32 seeded;                /* the stack is followed since it was known */
    u32 deeper;                /* open ranges of other sources that are too deep to be kept */
    u32 adopted;               /* path of the stage whose backward pass the thread works on */
    struct open_stage outside; /* holds the parts of the time outside any stage */
    struct open_stage open[MAX_DEPTH];
    u32 handles[MAX_DEPTH]; /* of open ranges that are known by one, 0 = not told */
    struct span_call calls[CALL_STACK];
    struct frame frame[MAX_FRAMES];
};
/* Kernels allocate a record with its headers in one piece. From 8 KiB on some
 * refuse to, and others need four pages in a row. */
_Static_assert(sizeof(struct thread_state) <= 8192 - 256, "thread_state");

#endif
