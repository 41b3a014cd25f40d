"""An app whose workflows tell in a folder what they do, so that tests can follow other processes."""
