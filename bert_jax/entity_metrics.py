"""Entities in tag sequences, scored by the rules of conlleval."""
