"""How partial results of a divided reduction are kept and joined: by lanes, by threads, by shuffles."""
