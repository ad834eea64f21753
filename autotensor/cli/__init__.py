"""The command `autotensor`: its options, output and interrupts; models, files and values as its arguments.

    verbs/        the verbs
    main.py       finds the verb; turns every error into one sentence and an exit code
    options.py    options that several verbs share, and their spelling
    output.py     tables, JSON, units

A verb is a module with a Typer `app`. At the top, modules import only Typer; a verb imports everything else
when it runs, so that `--help` answers at once.
"""
