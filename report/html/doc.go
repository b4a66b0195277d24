// Package html shows a Ledger as one HTML page that needs nothing but itself: no
// network, no server, no other file. What the numbers mean is said in package
// correlate.
//
// The page consists of a frame (page.html), a style sheet, and scripts, all in
// the folder page; and of the data, as JSON, from which the scripts build what
// is shown. Its content security policy allows exactly this style sheet and
// these scripts, by their hashes, and nothing else: neither a connection nor a
// script that a name of the target might carry. Names are data all the way, and
// reach the page as text only.
//
// The same Ledgers give the same bytes.
//
// # Data
//
// One object. Times are nanoseconds. Indices count from 0 and mean the lists of
// the same recording, if not said otherwise.
//
//	segments    [{title, class, rare}]: what bars are divided into, in order, by
//	            kind of part and, for driver time, whether the GIL was held; rare
//	            ones are named in the legend only where they occur
//	comparison  null, or {headline, titles, stages: [{path, process, longer, rows,
//	            before, after}], warnings}, those that moved the wall clock most
//	            first; rows are texts below the titles, the first one about the wall
//	            time; longer is null unless that changed significantly; before and
//	            after are {wall, segments: [time]}, means of an iteration, or null
//	shown       index of the recording that is shown first
//	recordings  one object for each Ledger:
//	    name      of the file
//	    process, command, window, calls_line  the heading, as the text report has it
//	    window_ns
//	    part_names [{name, segment}]
//	    threads   [{name, tid, role, stages, calls, gil, parts}]; stages is null when
//	              no span of the thread was seen
//	    stages    [{name, path, depth, inside, process, complete, partial, wall,
//	              exclusive, per_span, parts, parts_within, iterations, calls, gil,
//	              adopted}], in the order of the tables; wall and exclusive are those
//	              of complete and partial spans inside the window, per_span is the
//	              mean of complete ones, null when none was seen
//	    outside   <parts> of the time outside any stage
//	    calls     [{stage, thread, symbol, gil, attribution, count, errors, wall, cpu,
//	              bytes, max, p50, p99, callers: [{name, count, wall}]}]; stage is -1
//	              outside any
//	    spans     the single spans, by begin, one list for each of their fields: stage,
//	              thread, begin (since the window's), wall, partial (indices of those
//	              that the window's edge cut), parts (for each span the number of its
//	              parts, then pairs of name and time)
//	    debts     [{stage, waits, wall, owners: [{name, waits, wall, operations}]}], or
//	              null where no wait was for the work of a stage: stages that waited
//	              for the device, and for whose work; how wall is divided is an estimate
//	    python    [{line, stage, from, calls, gil, symbols: [{name, count, wall}],
//	              samples}], or null where no stack was read: the program's own lines
//	              of Python that calls were made by way of; how the calls of a stage
//	              are divided over lines is an estimate from samples
//	    lost, account, cost, gpu_title, gpu, warnings  as the text report has them
//
//	<parts>       {wall, parts: [[part name, time]]}; null when nothing is known of
//	              them. The times sum to wall
//	gil           {state: {count, wall, caused}}; caused, here and in callers, is how
//	              long other threads waited for the GIL in these calls, left out if 0
package html
