"""The first day with a card: what `python benchmarks/gpu.py` does, stage by stage.

stages.py     what there is to do: stages of named items           ◀ start here
checks.py     items that are right or wrong;  speeds.py: items that are measured
child.py      runs the items of one stage, in a process of its own
conduct.py    starts children, watches their time (own_time.py), notes what became of every item
journal.py    those notes, a line each: what a second run goes on from
failures.py   names of what went wrong, and ten lines that show it again
machine.py    what of a card is here, and what to do if it is none
page.py       the HTML
"""
