"""Rules that replace a stage by other stages, by an algorithm. The new stages go through all rules again."""
