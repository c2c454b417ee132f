"""Traces: what processes do when, recorded in shared memory and written as files that Perfetto reads.

slices.py      layers, phases, and the places in Python where a tracer can look in
area.py        the memory of one process's marks, as csrc/trace.h lays it out
recording.py   makes this process record, if it is asked to
flows.py       numbers that join a request's slices across processes
collector.py   takes the marks of many processes as they come; believes nothing that it reads
timeline.py    marks as slices, instants and counters of threads
marks.py       the names of slices, `[NN_layer_phase]detail`
perfetto.py    files in Perfetto's own format, written and read
chrome.py      files in Chrome's JSON
ftrace.py      the original's text, read
report.py      where time went, by layer and phase
view.py        a page that shows a trace, from this machine alone
"""
