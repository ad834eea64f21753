"""From object files to code in this process: ELF, sections, relocations, symbols, loaders."""
