"""The words that test texts are made of, and how many tokens they become."""

SUBJECTS = "judge clerk baker sailor farmer teacher painter doctor".split()
VERBS = "writes reads finds paints carries opens sells hides".split()
OBJECTS = "letter book door basket picture candle bottle ladder".split()
PLACES = "garden harbour kitchen market library tower valley station".split()
VOCAB_SIZE = 160
