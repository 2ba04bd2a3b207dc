"""Words in columns, a tag last: the files of CoNLL's shared tasks, read and written."""
