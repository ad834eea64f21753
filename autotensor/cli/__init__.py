"""The command `autotensor`: its options, output and interrupts; models, files and values as its arguments.

    verbs/        the verbs
    main.py       which verb; every error is one sentence and an exit code
    options.py    options that several verbs share, and their spelling
    output.py     tables, JSON, units

A verb is a module with a Typer `app`. Modules import Typer alone; what a verb needs it imports when it
runs, so that `--help` answers at once.
"""
