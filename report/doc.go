// Package report shows a Ledger: as the table that closes a recording (Text)
// and as one JSON object (JSON); and its single spans as lines of JSON (Spans). What the numbers mean is said in package
// correlate.
//
// # Text
//
// The first table is about stages, those that cost the most driver time first
// and the stages inside a stage below it, indented:
//
//	SPANS     complete spans; "+2" more were cut by the edge of the window
//	WALL      wall time inside the window, of both kinds of span, summed over
//	          threads, with the stages inside it
//	PER SPAN  mean wall time of a complete span
//	CUDA      host time inside driver calls, with those of the stages inside it
//	%WALL     CUDA / WALL
//	GIL ...   CUDA by the state of the GIL at call entry
//	CALLS     number of those calls
//
// The line below names the calls that cost most. Behind "GIL held" stands how
// long other threads waited for the lock in these calls. A stage that has others
// inside it is followed by a row "(itself)": what is left without them. So the
// rows of one level add up to the row above. Where a value is not known there
// is a "-": it is missing, not 0. A row "+ autograd" or "+ process" shows calls
// that other threads made on behalf of the stage; they run beside its wall
// time and are in no other row's sum but that of all calls.
//
// The second table says where the wall time goes: for every stage with the
// stages inside it, the "(itself)" rows without, shares that sum to 100 %:
//
//	CUDA CPU   running inside driver calls, the probes' own time taken out
//	CUDA BLKD  off the CPU inside driver calls
//	GIL WAIT   asleep until Python's lock is free
//	RUNNABLE   ready to run, without a CPU
//	BLOCKED    asleep for another reason; the line below says which
//	RUNNING    running, outside driver calls
//	PROBES     the probes' own time inside driver calls ("stageprof" elsewhere)
//	INSIDE     in stages inside, of which no more is known
//	UNKNOWN    the recording does not say
//
// The table of sync debt says whose work the stages waited for: for each stage
// that waited, its waits and their time as measured, and below it the stages
// that had work before them. How the time is divided among these is an
// ESTIMATE, by number of operations; a long operation counts as much as a
// short one. "(nothing)" are waits with nothing before them, "(not seen)" those
// of which the recording did not see what was before them, "(not remembered)"
// is work of stages that were too many to be told apart.
//
// WALL TIME BY REGION splits the time of stages, without the stages inside them, by
// the innermost region that was open; of stages that had none there is no row.
//
// These come always. Further ones come only in full, or where no stage was
// seen: then functions and threads are all that there is.
//
// The next table is about single complete spans: their wall time and their
// largest parts, those of the stage itself by function, with the stages inside
// as one part. %MEAN is a part's share of the mean span. Percentiles are exact
// for the spans that the recording has one by one; "700 of 790" says that it
// does not have all of them.
//
// Then follow a table of functions and one of threads. ON CPU is the part of
// CUDA in which the calling thread was running; in the rest it waited.
// ~P50 and ~P99 come from a histogram of powers of two and are off by less than
// a factor of two. The last table says where the threads' time went, also of
// those that were in no stage; ROLE is what a thread is there for, as far as
// its name says.
//
// Names that the target chose cannot disturb the terminal: control characters
// and those that change the writing direction are shown as \x1b or \u202e.
//
// # Several processes
//
// TextOfSeveral compares processes that were recorded together. The first table has
// a row for each, by rank. STAGE BY PROCESS has each stage's processes, the one with
// the longest PER SPAN first; VS MEDIAN compares that with the median of the
// processes; up to 16 rows of a stage. LOST, COST and WARNINGS name the process. BUDGET has
// a row for each that had one: the shares of one CPU that it was ALLOWED and has USED, the
// WINDOWS, and how much they have COVERED of its time; below it each one's estimate.
//
// # JSON
//
// One object. Times are integers in nanoseconds, sizes in bytes; a value that
// is not known is null, never 0. Keys are only ever added, unless "format"
// changes.
//
//	format        1
//	version       of the stageprof that recorded
//	target        {pid, ns_pid, start_time, exe, comm, cmdline, rank, local_rank,
//	              world_size, python: null or {version, path, gil_method, gil_reason,
//	              stacks, stacks_reason}}
//	window        {start, start_ns, duration_ns, end}
//	calls         [{thread, tid, stage_path, symbol, api, gil, attribution,
//	              <total>, stacks}]: every call is in exactly one of them; stage_path
//	              is "" outside any stage
//	    stacks    null when no Python stack was read, else [{frames: [{function, file,
//	              line}], cut, samples, count, errors, bytes, wall_ns, cpu_ns,
//	              gil_wait_caused_ns}]: the parts of the total by Python stack,
//	              innermost frame first; cut when there were more outer frames. An
//	              estimate from so many samples that sums to the total. frames is []
//	              where the thread ran no Python and null for what is of rows without
//	              a sample
//	stages        [{stage_path, names, process, python_function, spans, calls,
//	              calls_within, adopted, threads, parts, parts_within, parts_by_region,
//	              iterations}], parents before children; a python_function has calls and no time
//	    spans     null when none was seen, else {count, wall_ns, exclusive_ns,
//	              cpu_ns, min_ns, max_ns, p50_ns, p99_ns, parts, partial: {count,
//	              wall_ns, exclusive_ns, cpu_ns, parts}}; their parts are those of
//	              exclusive_ns as measured, calls not told apart, or null:
//	              {running_ns, cuda_cpu_ns, cuda_blocked_ns, gil_wait_ns,
//	              runnable_ns, blocked_futex_ns, blocked_poll_ns, blocked_read_ns,
//	              blocked_sleep_ns, blocked_fault_ns, blocked_other_ns}
//	    calls     <breakdown> of the stage itself; its "share" is of the exclusive
//	              wall time, complete and partial
//	    calls_within  <breakdown> with the stages inside it; its "share" is of the
//	              whole wall time
//	    adopted   [{attribution, calls, calls_within}]: <breakdown>s without share
//	    threads   [{thread, tid, spans, calls: <total>, parts, parts_within,
//	              parts_by_region}]
//	    parts     <parts> of the wall time of the stage itself, complete and partial
//	    parts_within  <parts> with the stages inside it
//	    parts_by_region  null unless functions were followed as regions, else
//	              [{names, wall_ns, parts: <parts>}]: parts by the stack of regions that
//	              was open, outermost first; names is [] outside any. They sum to parts
//	    iterations  null when there are no single spans, else {count, skipped,
//	              missing, wall: {mean_ns, p50_ns, p99_ns, max_ns}, parts: {name: the
//	              same}} of the complete spans that were recorded one by one; skipped
//	              is how many of them were left out as asked for, missing how many
//	              there were beside them; wall is null when none is left. Percentiles
//	              are exact. The part of a span that is its stages inside is "child
//	              stages"
//	regions       [{stage_path, attribution, names, count, wall_ns, exclusive_ns,
//	              min_ns, max_ns, partial: {count, wall_ns, exclusive_ns}, calls,
//	              calls_within}]: functions that were followed, outer ones before
//	              those inside them; names is the stack of regions, outermost first.
//	              Times are from entry to exit, exclusive_ns without the regions
//	              inside; the <breakdown>s are of the calls inside
//	allocations   [{stage_path, attribution, count, bytes, freed, freed_bytes,
//	              freed_unknown}]: memory that PyTorch's allocator gave to tensors
//	              and got back; freed_unknown of freed were allocated before the
//	              recording and are not in freed_bytes. Empty unless asked for
//	outside       <breakdown> of the calls outside any stage
//	parts_outside  <parts> of the time outside any stage, summed over threads
//	parts_outside_by_region  as parts_by_region of a stage
//	all           <breakdown> of all calls
//	threads       [{thread, tid, ns_tid, incarnations, stages_ns, calls: <breakdown>,
//	              outside: <total>, adopted: <total>, role, parts, parts_outside,
//	              parts_outside_by_region}];
//	              stages_ns is null when no span of the thread was seen; role is
//	              autograd, watchdog, pin memory or none; the <parts> are those of
//	              its life in the window, and of what was outside any stage
//	sync_debt     null when not recorded, else [{thread, tid, stage_path, symbol, api,
//	              owner, owner_path, waits, estimated_wall_ns, operations}]: whose work
//	              the calls of a thread, stage and function waited for. owner is stage,
//	              forgotten, unseen or idle; owner_path is null unless it is stage, and ""
//	              for work that was given outside any stage. waits and operations are
//	              counts; estimated_wall_ns is an estimate, and sums, over the owners, to
//	              those calls' raw_wall_ns
//	losses        {reason: {kind, count, help}}; a reason that has several kinds is
//	              written reason/kind
//	balance       {seen, reported, lost, holds}; seen is null when it was not counted
//	overhead      {calibrated, call_cost_ns, added_ns, agent_cpu_ns, agent_rss,
//	              attach_ns, detach_ns, calibration, probed_sites, kernel_bytes,
//	              followed, followed_ns, samples, samples_ns, looks, looks_ns,
//	              programs: [{name, runs, wall_ns}] (optional: as the kernel counted)};
//	              executions of followed functions and what these cost; Python stacks
//	              that were read, and looks at them for functions that are stages, and
//	              what either took the target's threads
//	budget        null when there was none, else {share, used, elapsed_ns, covered_ns,
//	              windows: [{start_ns, duration_ns, cost_ns}], cost: {calls_ns, idle_ns,
//	              stages_ns, scheduler_ns, python_ns, switching_ns}, estimate, trial}: shares
//	              of one CPU that were allowed and used, what the windows cost all
//	              threads, and for what. covered_ns is window.duration_ns; all other
//	              values are of the windows only. estimate is null unless there were
//	              gaps, else {factor, calls, wall_ns}: all's, times elapsed_ns /
//	              covered_ns, to three digits. trial is null unless functions were left
//	              out, else {start_ns, duration_ns, cost_ns, groups: [{group, calls,
//	              cost_ns, left_out}]}: the window that showed what its groups cost;
//	              functions of those left out were not probed since, and all other
//	              values but cost and elapsed_ns are without it
//	probes        [{symbol, api, group, module, build_id, address, probe_offset,
//	              placement, bias_ns}]
//	absent        [symbol]: known, but in no driver that the target maps
//	gpu           null or {driver, devices: [...]}, a device as recording.Device has it
//	gpu_note      why gpu is null, or ""
//	gpu_stages    [{stage_path, gpu, open_ns, utilization_pct, power_w, energy_j}]: what
//	              each device did while a stage was open on at least one thread
//	warnings      [text]
//
//	<total>       count, errors, wall_ns, cpu_ns, bytes, raw_wall_ns, raw_cpu_ns,
//	              min_ns, max_ns, p50_ns, p99_ns, gil_wait_caused_ns: how long other
//	              threads waited for the GIL while these calls had it held; left out
//	              if 0, here and in stacks
//	<breakdown>   {<total>, share, gil: {state: <total>}, symbols: {name: {<total>,
//	              gil: {state: <total>}}}, apis: the same by api}
//	<parts>       {name: ns}, null when nothing is known of them. They sum to the wall
//	              time to the nanosecond; parts of 0 are left out. Names are as in
//	              package correlate, e.g. "cuda blocked: cuStreamSynchronize [gil held]"
//
// # Views
//
// A View is one table of a saved Recording, which docs/semantics.md describes,
// as text, CSV, Markdown or JSON. The JSON objects:
//
//	Groups     {format, by: [name], match: null or text, groups: [{key: {name: value},
//	           share, <tally>}], left, rest: <tally>, hidden: <tally>, all: <tally>}:
//	           share is of the driver time of all; left is how many groups are not
//	           among the top, rest their sum, hidden the sum of those that don't match.
//	           A <tally> is a <total>, by python with samples, the stacks that the
//	           division goes by (raw_wall_ns, raw_cpu_ns, min_ns, max_ns, p50_ns and
//	           p99_ns are null there), by region with time: {wall_ns, parts: <parts>},
//	           which threads spent; left out if the recording does not say
//	Trend      {format, skip_first, skip_warmup, stages: [{stage_path, spans, skipped,
//	           warmup: [{thread, tid, spans, settled}], points: [spans], wall_ns: [mean],
//	           parts: {kind: [mean]}}]}: the lists have one value for each point, which
//	           is so many consecutive spans
//	Histogram  {format, function, total: <total>, bias_ns, buckets: [{from_ns, below_ns,
//	           count}]}: of durations as measured; below_ns is null where there is no
//	           bound
//
// # Comparisons
//
// CompareText, CompareCSV and CompareMarkdown write a table of changes, which
// docs/semantics.md describes; the CSV has every metric of every stage: mean,
// ends of its interval and number of iterations on both sides, change, ratio of
// change (0.05 is 5 % more), p-value, impact, all in ns or calls as unit says,
// and of the stage the iterations in a run and per second. What is not known is
// empty. CompareJSON writes one object:
//
//	format        1
//	headline      one line: what moved the wall clock most
//	alpha, confidence, skip_first, skip_warmup
//	before, after [{file, version, program, cmdline, pid, rank, duration_ns, calls,
//	              lost_calls}]
//	stages        [{stage_path, process, sides, iterations, per_s, impact_ns, metrics}],
//	              the largest significant impact first; sides is both, before or
//	              after; iterations (complete spans in a run) and per_s are {before,
//	              after}
//	    metrics   [{metric, unit, before, after, delta, delta_ratio, p, significant}]:
//	              unit is ns or calls; before and after are null or {mean, low, high,
//	              n}, low and high null unless n > 1; delta_ratio is null where there
//	              was nothing before, p where nothing could be tested
//	conditions    [{condition, failed, met: [text]}]
//	warnings      [text]
//
// # JSON of several processes
//
// JSONOfSeveral writes one object:
//
//	format        1
//	processes     [the object above, of each], by rank
//	not_recorded  [text]: processes that use CUDA and were not recorded, and why
//
// # Spans
//
// One JSON object on a line for each single span, complete or partial:
//
//	tid         of the thread, in the agent's pid namespace
//	thread      its name
//	stage_path  names of all open stages, joined with "/"
//	pid, rank   of the process, where the file holds the spans of several
//	begin_ns    CLOCK_MONOTONIC; of a span that the window cut, the window's edge
//	wall_ns     of a partial span, the part inside the window
//	partial     whether the edge of the window cut it
//	parts       {name: ns}: they sum to wall_ns to the nanosecond; parts of 0 are
//	            left out; the stages inside are "child stages"
package report
