"""Counts how many small faults the tests notice, put into a package one at a time.

    python -m mutation_score serialize fmq hal/validation --sample 150 --seed 1

changes one operator, constant or statement (`mutants`), runs the tests that execute that line on a private
copy of the package (`project`, `worker`, `trial`), and counts which changes the tests notice. A mutant that
hangs or crashes is noticed, too.

Not every survivor wants a test. Some are the same program: a shortcut that is not taken, a bound that a later
check implies (an offset of -1 is not 8-aligned either), a close that the garbage collector does as well.
They count as survivors all the same, so the score errs downwards.

Why not mutmut or cosmic-ray: both rewrite the installed package in place or in a copy of their own layout,
start one interpreter for each mutant, and ignore a native module beside the sources. Here a trial is
a fork of a process that has already imported everything but nnburst, and only the tests that reach the
changed line run, the quickest first.
"""
