package top

var keyHelp = [][2]string{
	{"↑ ↓  j k", "select a stage; PgUp, PgDn, Home, End"},
	{"enter", "open the stage: its calls, waits, lines of Python and threads; esc goes back"},
	{"i", "times per iteration (a complete span) or per second (summed over threads)"},
	{"s", "sort by cuda, wall, time with the GIL held, change, name"},
	{"/", "show stages that have a text in their path; esc shows all again"},
	{"p  space", "pause the screen; recording goes on"},
	{"r", "reset: ALL begins anew here"},
	{"l", "losses, warnings and costs"},
	{"q  ^C", "quit: the probes are taken off, the process runs on"},
}

var columnHelp = [][2]string{
	{"SPANS/S", "complete spans per second, of all threads"},
	{"WALL", "wall time in the last interval, with the stages inside"},
	{"ALL", "the same since the start or the last reset"},
	{"CHANGE", "of WALL against ALL; small ones are noise"},
	{"CUDA", "host time inside driver calls, not GPU time; a + row: of other threads, for the stage"},
	{"HELD", "the part of CUDA in which no other thread could run Python"},
	{"CAUSED", "how long other threads waited for the GIL, while these calls had it held"},
	{"TREND", "WALL of the last intervals, newest to the right, from 0 to the highest"},
	{"waited", "for whose work it was that the stage waited for the device; the times are estimates"},
	{"samples", "calls whose Python line was read; how the others are divided over lines is estimated"},
	{"bars", "all of WALL; INSIDE is in the stages inside, which have their own rows"},
	{"of wall", "what the probes add on all threads together; no thread is slowed by more"},
	{"-", "not known, or nothing of it ended in the interval"},
}

func helpLines(width int) []line {
	lines := []line{styled(title, "KEYS")}
	lines = append(lines, definitions(keyHelp, width)...)
	lines = append(lines, nil, styled(title, "NUMBERS"))
	return append(lines, definitions(columnHelp, width)...)
}

// termCells is the room of a term, with the space after it.
const termCells = 12

func definitions(terms [][2]string, width int) (lines []line) {
	for _, t := range terms {
		for i, l := range wrapped(t[1], "", width-termCells) {
			term := line{}
			if i == 0 {
				term = line{{"  ", plain}, {t[0], bold}}
			}
			lines = append(lines, append(term.padded(termCells, false), l...))
		}
	}
	return lines
}
