"""Checks and measurements on a GPU card for `python benchmarks/gpu.py`, stage by stage.

stages.py     the stages, and their named items                    ◀ start here
checks.py     items that are right or wrong;  speeds.py: items that are measured
child.py      runs the items of one stage, in a separate process
conduct.py    starts children, watches their time (own_time.py), records the outcome of every item
journal.py    these records, one per line, from which a second run continues
failures.py   names of failures, and ten lines of code that show each again
machine.py    the parts of a card that this machine has, and what to install
page.py       the HTML
"""
