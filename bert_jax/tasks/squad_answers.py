"""Start and end scores → the best answers, cut from the documents themselves."""
