"""An app whose workflows record in a folder what they do, so that tests can follow other processes."""
