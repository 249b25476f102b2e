"""`rtad-loader dedup` and `plan --measure`, on ten million words: against sort and uniq, and
against the formula."""
