"""How partial results of a divided reduction are kept and joined."""
