"""The command line: the options of each verb."""
