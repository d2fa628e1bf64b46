"""One file per kind of target; each is found by being here."""
