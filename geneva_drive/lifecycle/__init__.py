"""How rows move. Everything here acts on rows that it is handed."""
